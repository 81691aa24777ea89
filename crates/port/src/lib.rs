//! The input and output of Nichrome: where frames come from and go to, and the memory they lie in.
//!
//! [`capture`] reads and writes capture files; a [`BufferPool`] holds the memory that frames are received into.
#![deny(unsafe_code)]

pub mod capture;
mod pool;

pub use pool::{Buffer, BufferPool};
