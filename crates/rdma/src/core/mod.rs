//! The verbs: objects, their rules, and the memory of the program. Nothing here knows how packets look.

pub(crate) mod access;
pub(crate) mod completion;
pub(crate) mod cq;
pub(crate) mod event;
pub(crate) mod key_table;
pub(crate) mod memory;
pub(crate) mod numbers;
pub(crate) mod protection;
pub(crate) mod random;
pub(crate) mod receive_queue;
pub(crate) mod send_queue;
pub(crate) mod slab;
pub(crate) mod verbs;
pub(crate) mod work;
