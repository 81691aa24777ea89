//! StaR: one side of a connection keeps its state, the card of the other keeps none (`docs/star.md`).
//!
//! | file | concept |
//! |---|---|
//! | `card.rs` | the stateless card: a function of packet and memory |
//! | `memory_table.rs` | who may reach which memory of a server, at its card and in its clients' copies |
//! | `security.rs` | what may leave a host: nothing that no server has allowed |
//! | `setup.rs` | the negotiation of roles and what each side must know of the other |
//! | `tag.rs` | keyed tags: keys that follow from one secret, and the server's clock at the client |

mod card;
mod memory_table;
mod security;
mod setup;
mod tag;

pub use card::{Answer, CardAuthentication, CardConfig, CardCounters, StatelessCard};
pub use memory_table::{KeyKind, MemoryTable, Reach, RegisteredMemory};
pub use security::{Blocked, EgressCounters, EgressModule};
pub use setup::{
    Admission, Agreement, Credentials, MAX_REGIONS, Offer, QueueDepth, Receives, Refusal, Room, Setup,
    SetupError, SetupEvent, Side, Timers, Wish, agree,
};
pub use tag::{ConnectionKey, ServerClock, ServerSecret};
