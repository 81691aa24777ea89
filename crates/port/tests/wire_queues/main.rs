//! AF_XDP, packet rings and TAP wires with the kernel of this machine: the same suite for all of them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod back_end;
mod packet_ring;
mod suite;
mod wire;
mod xdp;
