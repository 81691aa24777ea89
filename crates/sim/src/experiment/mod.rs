//! Experiments: a model, its parameters, and a paper's statements about the results.
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
//! label = "TCP connections"            # the parameter's description if left out
//! scale = "log2"                       # linear (if left out), log2, log10
//!
//! [[y]]                                # the y axis of a unit, optional; a panel for each unit
//! unit = "Gb/s"
//! label = "TCP payload received (Gb/s)"
//! scale = "linear"
//!
//! [[series]]                           # series with equal parameters and different metrics share their runs
//! name = "with LRO"
//! metric = "throughput"                # Runner::metrics
//! set = { lro = true }                 # written as with --set: "10.7us", 13, true, "round-robin"
//! source = "section 5"                 # source of the settings; mandatory for numbers
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
//! [[expected]]                         # a statement of the paper about a measured or derived series
//! series = "with LRO"
//! x = 64                               # an x value, an array of them, or all if left out
//! value = 4.75                         # or a bound: least = 4, or most = 16
//! unit = "Gb/s"                        # the metric's; "times" for a ratio, "%" for a reduction
//! tolerance = "5%"                     # of a value: relative, or absolute in the unit; optional
//! kind = "predicted"                   # fitted, repeated, derived, by construction: StatementKind
//! source = "VII"
//! sentence = "TCP data receiving throughput finally stabilizes around 4.75Gbps"
//!
//! [[expected]]
//! series = "with LRO"
//! of = "maximum begins"                # instead of x: maximum (over = "normal card": the ratio of both), maximum begins
//! value = 32                           # maximum begins: an x value in the unit of the axis; fall: from the first to the last value, in %
//! unit = "connections"
//! # ... tolerance, kind, source, sentence
//!
//! [[reading]]                          # another reading of a setting that the paper leaves open; its results are a range
//! name = "KB of 1,024 B"
//! set = { request = "2867B" }
//! source = "4.2: 2.8KB"
//!
//! [parameters]                         # every parameter that neither x nor all series set; no defaults
//! dma-start = { value = 7, unit = "us", source = "fitted to 913.3 Mb/s of the normal card" }
//! # An assumed or fitted value has a range (two numbers of the unit, or choices) and a reason for the range.
//! check-time = { value = 0.1, unit = "us", source = "assumed", range = [0.05, 0.3], reason = "one to three reads" }
//! ```
//!
//! Numbers are integers in a base unit ([`Dimension`]), so nothing is rounded. Error messages name file,
//! line, key and allowed values. A run depends on the parameters and the seed only; its hash is
//! [`Parameters::hash`].

mod definition;
mod dimension;
mod document;
mod fields;
mod figure;
mod judge;
mod library;
mod parameter;
mod parameters;
mod reader;
mod run_error;
mod runner;
mod sampling;
mod settings;
mod source;
mod statement;
mod statement_reader;
pub mod sweep;
mod text_file;
mod values;
mod variant;

pub use definition::{
    Definition, Derived, Extent, Parameter, Point, Range, Rule, Scale, Series, XAxis, YAxis, with_unit,
};
pub use dimension::{Dimension, QuantityError};
pub use document::{FileError, Problem};
pub use figure::{Compared, Plan};
pub use library::{BUILT_IN, Embedded, Library};
pub use parameter::{Kind, ParameterSpec, Value, ValueError};
pub use parameters::Parameters;
pub use run_error::RunError;
pub use runner::{Measurement, MetricSpec, Outcome, Runner, check_capture, run};
pub use sampling::Factor;
pub use settings::{PointError, SetError, Setting};
pub use source::{LoadError, Source};
pub use statement::{Claim, Expected, Statement, StatementKind, Subject, Tolerance};
pub use sweep::{Sweep, Task};
pub use text_file::read_text;
pub use values::Values;
pub use variant::Variant;

#[cfg(test)]
mod testing;
