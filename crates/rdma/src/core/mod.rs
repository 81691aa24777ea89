//! Objects and their rules: protection, queues, completions, queue pairs. Independent of transports and
//! packet formats.

pub(crate) mod access;
pub(crate) mod attributes;
pub(crate) mod completion;
pub(crate) mod counters;
pub(crate) mod cq;
pub(crate) mod drain;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod key_table;
pub mod kind;
pub(crate) mod limits;
pub(crate) mod members;
pub(crate) mod memory;
pub(crate) mod multicast;
pub(crate) mod numbers;
pub(crate) mod protection;
pub(crate) mod qp_map;
pub(crate) mod queue_pair;
pub(crate) mod random;
pub(crate) mod receive_queue;
pub(crate) mod send_queue;
pub(crate) mod slab;
pub(crate) mod verbs;
pub(crate) mod work;
