//! StaR: one side of a connection keeps its state, the card of the other keeps none (`docs/star.md`).
//!
//! | file | concept |
//! |---|---|
//! | `setup.rs` | the negotiation of roles and what each side must know of the other |
//! | `tag.rs` | keyed tags: keys that follow from one secret, and the server's clock at the client |

mod setup;
mod tag;

pub use setup::{
    Admission, Agreement, Credentials, MAX_REGIONS, Offer, QueueDepth, Receives, Refusal, Room, Setup,
    SetupError, SetupEvent, Side, Timers, Wish, agree,
};
pub use tag::{ConnectionKey, ServerClock, ServerSecret};
