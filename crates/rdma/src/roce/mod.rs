//! RoCEv2: reliable and unreliable connections and datagrams over UDP (IBA volume 1 chapter 9, annex A17).
//!
//! | file | concept |
//! |---|---|
//! | `connection.rs` | a queue pair with its transport state; error, reset, timers |
//! | `requester.rs` | which packet leaves next, and what its leaving changes |
//! | `completer.rs` | what answers do to the requests |
//! | `responder.rs` | what requests do here, and the answers they get |
//! | `answers.rs` | answers that wait to leave: acknowledgements, data of READs, results of atomics |
//! | `conversation.rs` | acknowledgements that leave together with the program's answer |
//! | `reorder.rs` | what arrived ahead of a lost packet, between two ends of ours |
//! | `probe.rs` | a packet to find out what no later packet shows, between the same |
//! | `dcqcn.rs` | a rate for each queue pair, set by congestion notifications |
//! | `unreliable.rs` | requests of unreliable connections, and datagrams |
//! | `ident.rs` | which IPv4 identifications the ICRCs of a peer may be right for |
//! | `window.rs` | how many packets are outstanding |

pub(crate) mod answers;
pub(crate) mod completer;
pub(crate) mod connection;
pub(crate) mod conversation;
pub(crate) mod dcqcn;
pub(crate) mod ident;
pub(crate) mod packet;
pub(crate) mod probe;
pub(crate) mod reorder;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod unreliable;
pub(crate) mod window;
