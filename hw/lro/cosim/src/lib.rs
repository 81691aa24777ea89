//! The hardware module of `hw/lro`, simulated by Verilator, and its comparison with the engine that specifies
//! it.
//!
//! [`Rtl`] is the module behind its ports, as a [`nichrome_wire::Engine`]: drivers of the engine can drive
//! the module, too. [`compare`] gives the same frames to both.

pub mod compare;
mod model;
pub mod package;
mod rtl;

pub use model::{Model, Width};
pub use rtl::{Kind, Packet, Rtl, RtlConfig, Stalls, Totals};
