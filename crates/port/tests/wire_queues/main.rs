//! AF_XDP and packet rings against the kernel that runs the tests: the same suite on all of them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod back_end;
mod packet_ring;
mod suite;
mod wire;
mod xdp;
