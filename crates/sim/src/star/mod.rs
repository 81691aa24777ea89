//! The cards of papers/star (Dai, Li, Fu, Tan: "Towards Stateless RNIC for Data Center Networks", APNet 2019)
//! around a switch: one with a context per connection, and StaR's, without contexts at the server.
//!
//! ```text
//! client's host ─► card ─► uplink ─► switch: a queue for each port ─► downlink ─► card [contexts, PCIe] ─► server's host
//! ```
//!
//! | part | the paper | here |
//! |---|---|---|
//! | network | section 4: a 100 Gb/s switch, 12 us, large queues | links with a queue each; optional loss, marking and limits |
//! | card with contexts | section 4: 300 fit; a miss takes 1 us of PCIe | LRU or random replacement, a PCIe read for each miss, stalls (`card.rs`) |
//! | reliable connections | RoCEv2 | the engine of crates/rdma, RoCEv2 (`engines.rs`) |
//! | StaR | section 3.1, Figures 2 and 3 | the engine of crates/rdma, StaR (`engines.rs`, `set_up.rs`) |
//! | auto-adaptation | section 3.3 | reliable until the budget is used, stateless beyond |
//! | congestion control | section 3.1: window-based, such as DCTCP | optionally the engine's DCTCP for both |
//! | alternatives | section 5 | connections that take turns in groups or share contexts, a larger context cache; transports without an engine (`baselines.rs`) |
//!
//! A packet built by an engine goes to its card, which sends it when it has the connection's context;
//! responses (ACK, RA, SDP, EA) and a driver's packets (WQEP, CQEP) need none. An arrived packet reaches the
//! engine when its card has the context. Not modelled: host work other than posting (the paper's computation
//! takes no time either), and payload DMA.

mod baselines;
mod card;
mod config;
mod connection;
mod context_cache;
mod context_pool;
mod engine_config;
mod engines;
mod lengths;
mod load;
mod network;
mod nodes;
mod operation;
mod outline;
mod packet;
mod parameters;
mod runner;
mod set_up;
mod side;
mod topology;

pub use runner::Star;
