//! The test bed of papers/rdma-over-ip: hosts with Ammasso's RNIC in two networks, and a router with degen
//! between them.
//!
//! ```text
//! program ── kernel's TCP ── interrupts ─┐                                                          (sockets)
//!                                        card ── switch A ── router, degen ── switch B ── card ...
//! program ── verbs ── iWARP, card's TCP ─┘                                                          (RDMA)
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | `programs` | the paper's benchmarks as steps: send, await, fetch, compute |
//! | `processors` | two processors: kernel work first, then programs, then the application in the background |
//! | `card` | PCI-X, and one processor that every frame and message passes |
//! | `adapter` | the RDMA device: `nichrome_rdma` with iWARP streams over the card's TCP, MPA's start-up included, or with datagrams |
//! | `datagram` | frames of RoCE and StaR, for experiments beyond the paper |
//! | `router` | interrupts that wait for more packets, one processor, and `nichrome_wan` as degen |
//! | `network` | the world: the flow of frames between the parts |
//!
//! TCP of the kernel and of the card is smoltcp ([`crate::host`]). Not modelled: interrupts and descriptors
//! of frames that were sent, the memory bus that processors and card share, caches, and time slices (a
//! communicating program has priority over the application, as programs that sleep have in Linux 2.4).

mod adapter;
mod card;
mod config;
mod datagram;
mod engine_config;
mod event;
mod network;
mod node;
mod parameters;
mod processors;
mod programs;
mod router;
mod runner;
mod set_up;
mod topology;

pub use self::runner::OverIp;
