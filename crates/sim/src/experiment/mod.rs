//! Experiments: a model, what it is told, and what a paper says comes out.
//!
//! A model is a [`Runner`] in the [`Library`]; an experiment is a file, `experiments/NAME.toml`:
//!
//! ```toml
//! name = "lro-npu-throughput"
//! title = "TCP throughput over the number of connections"
//! paper = "lro-npu, Figure 13"
//! model = "xls416"                     # Runner::name
//! seed = 1                             # 1 if left out
//! include = ["xls416"]                 # experiments/parameters/xls416.toml, or a path that ends in .toml
//!
//! [x]                                  # the parameter that varies along a series
//! parameter = "connections"
//! unit = "connections"                 # the dimension's base unit if left out; a fraction has "" or "%"
//! values = [1, 2, 4, 8, 16, 32, 64]
//! label = "TCP connections"            # what the parameter is, if left out
//! scale = "log2"                       # linear (if left out), log2, log10
//!
//! [[y]]                                # how values of a unit are drawn, if not linearly; a panel for each unit
//! unit = "Gb/s"
//! label = "TCP payload received (Gb/s)"
//! scale = "linear"
//!
//! [[series]]                           # series with equal parameters and different metrics share their runs
//! name = "with LRO"
//! metric = "throughput"                # Runner::metrics
//! set = { lro = true }                 # written as with --set: "10.7us", 13, true, "round-robin"
//! source = "section 5"                 # where what is set is from; numbers must have one
//!
//! [[series]]
//! name = "normal card"
//! metric = "throughput"
//! set = { lro = false }
//!
//! [[derived]]                          # ratio (a / b), difference (a - b), reduction (by how many % b is below a)
//! name = "gain"
//! rule = "ratio"
//! of = ["with LRO", "normal card"]
//!
//! [[expected]]                         # what the paper says of a series or of something derived
//! series = "with LRO"
//! x = 64                               # one place, an array of them, or everywhere if left out
//! value = 4.75
//! unit = "Gb/s"                        # the metric's; "times" for a ratio, "%" for a reduction
//! tolerance = "5%"                     # relative, or a number of the unit; may be left out
//! source = "VII: stabilizes around 4.75 Gb/s"
//!
//! [parameters]                         # every parameter that neither x nor all series set; no defaults
//! dma-start = { value = 7, unit = "us", source = "fitted to 913.3 Mb/s of the normal card" }
//! ```
//!
//! Numbers are kept as whole numbers of a base unit ([`Dimension`]), so nothing is rounded. What is wrong in a file is told
//! with file, line, key and what is allowed. A run depends on the parameters and the seed only; its hash is
//! [`Parameters::hash`].

mod definition;
mod dimension;
mod document;
mod figure;
mod library;
mod parameter;
mod parameters;
mod reader;
mod run_error;
mod runner;
mod settings;
mod source;
pub mod sweep;

pub use definition::{
    Definition, Derived, Expected, Parameter, Point, Rule, Scale, Series, Tolerance, XAxis, YAxis, with_unit,
};
pub use dimension::{Dimension, QuantityError};
pub use document::{FileError, Problem};
pub use figure::{Compared, Plan};
pub use library::{BUILT_IN, Embedded, Library};
pub use parameter::{Kind, ParameterSpec, Value, ValueError};
pub use parameters::Parameters;
pub use run_error::RunError;
pub use runner::{Measurement, MetricSpec, Outcome, Runner, check_capture, run};
pub use settings::{PointError, SetError, Setting};
pub use source::{LoadError, Source};
pub use sweep::{Sweep, Task};

#[cfg(test)]
mod testing;
