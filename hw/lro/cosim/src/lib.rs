//! The hardware module of `hw/lro`, simulated by Verilator, beside the engine that specifies it.
//!
//! [`Rtl`] is the module behind its ports, as a [`nichrome_wire::Engine`]: what drives the engine drives it
//! too. [`compare`] gives the same frames to both.

pub mod compare;
mod model;
pub mod package;
mod rtl;

pub use model::{Model, Width};
pub use rtl::{Kind, Packet, Rtl, RtlConfig, Stalls, Totals};
