//! The card of lro-npu (Li, Chen, Su: "Implementation of TCP Large Receive Offload on Multi-core NPU
//! Platform"): an XLS416 network processor behind PCIe, in virtual time.
//!
//! ```text
//! wire ──► distribution ──► receiving threads ──► DMA engine ──► host
//!                                 ▲  │                ▲
//!                  timeouts (IV.E)│  │requests (V.B)  │one at a time
//!                                 │  ▼                │
//!                          timeout checking thread ───┘
//! ```
//!
//! | file | concept | lro-npu |
//! |---|---|---|
//! | `cores.rs` | four cores that each issue for one of four threads at a time | I, VI |
//! | `distribution.rs` | assignment of four-tuples to receiving threads | IV.A |
//! | `ring.rs` | message rings and rings of packet descriptors | V.A, VI |
//! | `receive_thread.rs` | a receiving thread, with an engine of `nichrome_lro` in it | III, Figure 4 |
//! | `timeout_checker.rs`, `balancer.rs` | the timeout checking thread and its DMA load balance | IV.E, V.B, Figure 10 |
//! | `dma.rs` | the DMA engine and its stack of requests | V.B, Figure 9 |
//! | `card.rs` | the card | |
//! | `driver.rs` | the server's driver with LRO in software | I, II |
//! | `testbed.rs` | client, wire, card, server | VII, Figure 12 |
//! | `points.rs`, `probes.rs` | capture points, sampled values | |
//! | `config.rs` | the card's configuration | |
//! | `parameters.rs`, `runner.rs`, `repetitions.rs` | parameters and metrics; their spread over repetitions | |

mod balancer;
mod card;
mod config;
mod cores;
mod distribution;
mod dma;
mod driver;
mod parameters;
mod points;
mod probes;
mod receive_thread;
mod repetitions;
mod ring;
mod runner;
mod testbed;
mod timeout_checker;

pub use runner::Xls416;
