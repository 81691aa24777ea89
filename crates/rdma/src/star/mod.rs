//! StaR: one side of a connection keeps its state, the card of the other keeps none (`docs/star.md`).
//!
//! | file | concept |
//! |---|---|
//! | `stateless/` | the stateless side: software in the card's host that announces requests to the client in WQEPs |
//! | `stateful/` | the stateful side, the client, which executes the requests of both sides |
//! | `mirror.rs`, `pipeline.rs`, `flight.rs` | the client's copy of the server's queues; operations and their chunks; packets in flight |
//! | `mirror_pool.rs` | the bytes that such copies take together |
//! | `elements.rs`, `element_room.rs` | reliable delivery of WQEPs and CQEPs, in order; the size of one |
//! | `timer.rs`, `grace.rs` | the retransmission timer; when requests fail after the peer's Close |
//! | `endpoint.rs` | a queue pair on either side |
//! | `connection_end.rs`, `seal.rs`, `packet.rs`, `status.rs` | building and receiving packets, on both sides |
//! | `card.rs`, `card_queue.rs` | the stateless card, and the packets that wait for it |
//! | `result_slots.rs` | results of the clients' atomic operations, in the memory of the server's host |
//! | `memory_table.rs` | access to a server's registered memory, at its card and in its clients' copies |
//! | `security.rs` | the egress module: blocks packets that no server has allowed |
//! | `setup.rs`, `negotiate.rs` | the negotiation of roles, and its questions to the device |
//! | `config.rs`, `shared.rs` | configuration and state that the queue pairs of a device share |
//! | `lease.rs`, `revoked.rs` | how long a client may use its grants; leases revoked before their end |
//! | `grants.rs` | the card's cache of keys and codes |
//! | `tag.rs` | keyed tags, with keys derived from one secret |
//! | `server_clock.rs`, `lifetime.rs` | the server's clock at the client; the lifetime of the client's packets |

mod card;
mod card_queue;
mod config;
mod connection_end;
mod element_room;
mod elements;
mod endpoint;
mod flight;
mod grace;
mod grants;
mod lease;
mod lifetime;
mod memory_table;
mod mirror;
mod mirror_pool;
mod negotiate;
mod packet;
mod pipeline;
mod result_slots;
mod revoked;
mod seal;
mod security;
mod server_clock;
mod setup;
mod shared;
mod stateful;
mod stateless;
mod status;
mod tag;
mod timer;

pub use card::{Answer, CardAuthentication, CardConfig, CardCounters, StatelessCard};
pub use config::StarConfig;
pub(crate) use endpoint::StarQp;
pub use memory_table::{MAX_TABLE_REGIONS, MemoryTable, Reach, RegisteredMemory};
pub use negotiate::{Admit, Connect, MakeOffer};
pub use result_slots::ResultSlots;
pub use security::{Blocked, EgressCounters, EgressModule};
pub use setup::{
    Admission, Agreement, Credentials, MAX_REGIONS, Offer, QueueDepth, Receives, Refusal, Room, Setup,
    SetupError, SetupEvent, Side, Timers, Wish, agree, peek_offer,
};
pub use tag::{ConnectionKey, Ends, ServerSecret};

/// A device's role in a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StarRole {
    /// Its card keeps no state and answers packets; its driver announces requests to the peer.
    Stateless,
    /// Keeps the state of both sides, as the peer's admission allows.
    Stateful(Admission),
}
