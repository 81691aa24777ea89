//! StaR: one side of a connection keeps its state, the card of the other keeps none (`docs/star.md`).
//!
//! | file | concept |
//! |---|---|
//! | `driver.rs` | the stateless side: the software that hands work to the client, in the host of the card; with `requests.rs`, `completions.rs` |
//! | `stateful.rs` | the stateful side, the client; with `begin.rs`, `chunk.rs`, `complete.rs`, `time.rs`, `mirror.rs`, `pipeline.rs`, `flight.rs` |
//! | `elements.rs` | elements in order and each once, in both directions |
//! | `timer.rs` | when something is sent again |
//! | `endpoint.rs` | a queue pair on either side |
//! | `side.rs`, `seal.rs`, `packet.rs`, `status.rs` | what both sides have in common |
//! | `card.rs`, `card_queue.rs` | the stateless card: a function of packet and memory; packets that wait for it |
//! | `memory_table.rs` | who may reach which memory of a server, at its card and in its clients' copies |
//! | `security.rs` | what may leave a host: nothing that no server has allowed |
//! | `setup.rs`, `negotiate.rs` | the negotiation of roles and what each side must know of the other; what it asks of the device |
//! | `config.rs`, `shared.rs` | what all queue pairs of a device share |
//! | `tag.rs` | keyed tags: keys that follow from one secret, and the server's clock at the client |

mod begin;
mod card;
mod card_queue;
mod chunk;
mod complete;
mod completions;
mod config;
mod driver;
mod elements;
mod endpoint;
mod flight;
mod memory_table;
mod mirror;
mod negotiate;
mod packet;
mod pipeline;
mod requests;
mod seal;
mod security;
mod setup;
mod shared;
mod side;
mod stateful;
mod status;
mod tag;
mod time;
mod timer;

pub use card::{Answer, CardAuthentication, CardConfig, CardCounters, StatelessCard};
pub use config::StarConfig;
pub(crate) use endpoint::StarQp;
pub use memory_table::{KeyKind, MemoryTable, Reach, RegisteredMemory};
pub use negotiate::{Admit, Connect, MakeOffer};
pub use security::{Blocked, EgressCounters, EgressModule};
pub use setup::{
    Admission, Agreement, Credentials, MAX_REGIONS, Offer, QueueDepth, Receives, Refusal, Room, Setup,
    SetupError, SetupEvent, Side, Timers, Wish, agree, peek_offer,
};
pub use tag::{ConnectionKey, ServerClock, ServerSecret};

/// The part that a device takes in a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StarRole {
    /// It keeps no state: its card answers packets, its driver hands work to the peer.
    Stateless,
    /// It keeps the state of both sides, and the peer has admitted it.
    Stateful(Admission),
}
