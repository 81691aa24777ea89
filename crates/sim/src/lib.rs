//! A discrete-event simulator: Nichrome's engines inside models of hardware, in virtual time.
#![forbid(unsafe_code)]

mod event_queue;

pub use event_queue::EventQueue;
