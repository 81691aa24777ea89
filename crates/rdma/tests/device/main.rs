//! Devices over a network in virtual time. One executable: the engine is generic over memory, and each
//! executable compiles all of it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/program.rs"]
mod program;

mod allocations;
mod captures;
mod conversation;
mod flush;
mod multicast;
mod property;
mod protection;
mod rc;
mod recovery;
mod refusals;
mod repeated_requests;
mod send_forms;
mod sequences;
mod services;
mod shared_receives;
mod star;
mod star_adversary;
mod star_atomics;
mod star_close;
mod star_congestion;
mod star_connections;
mod star_errors;
mod star_loss;
mod star_many;
mod star_one_place;
mod star_peer;
mod star_property;
mod star_rights;
mod star_shared_receives;
mod star_survival;
mod steering;
mod unwritable_receives;
mod wire_trace;
mod xrc;
