//! The manager: connections, services, programs of the kernel's commands, and what adversaries send.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod adversary;
mod backlog;
mod captures;
#[path = "../common/mod.rs"]
mod common;
mod connect;
mod held;
mod layout;
mod many;
mod property;
mod services;
mod streams;
mod ucma;
