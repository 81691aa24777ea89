//! The cards of papers/star (Dai, Li, Fu, Tan: "Towards Stateless RNIC for Data Center Networks", APNet 2019) around a switch:
//! one that keeps a context for each connection, and StaR's, which keeps none at the server.
//!
//! ```text
//! client's host ─► card ─► uplink ─► switch: a queue for each port ─► downlink ─► card [contexts, PCIe] ─► server's host
//! ```
//!
//! | part | the paper | here |
//! |---|---|---|
//! | network | section 4: a 100 Gb/s switch, 12 us, queues large enough | links with a queue before each; loss, marks and limits where they are asked for |
//! | card with contexts | section 4: 300 fit; a miss takes 1 us of PCIe | LRU or random replacement, a PCIe read for each miss, stalls (`card.rs`) |
//! | reliable connections | RoCEv2 | an acknowledgement for each packet, go back N (`reliable.rs`, `stream.rs`) |
//! | StaR | section 3.1, Figures 2 and 3 | its seven packet types (`stateless.rs`, `exchange.rs`, `elements.rs`) |
//! | auto-adaptation | section 3.3 | reliable until the budget is used, stateless beyond |
//! | congestion control | section 3.1: window-based, such as DCTCP | DCTCP for both (`window.rs`), where it is asked for |
//! | others' ways | section 5 | connections that take turns in groups, datagrams, more contexts on chip |
//!
//! Packets are lengths only. Left out: what hosts do but post work (the paper's computation takes no time either), DMA of the
//! data, the security module, and a context's own rules such as receiver-not-ready.

mod card;
mod config;
mod connection;
mod context_cache;
mod datagram;
mod elements;
mod exchange;
mod lengths;
mod load;
mod network;
mod packet;
mod parameters;
mod reliable;
mod runner;
mod stateless;
mod stream;
mod topology;
mod window;

pub use runner::Star;
