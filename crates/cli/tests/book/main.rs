//! The book: its commands run, and its links lead somewhere.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod blocks;
mod commands;
mod links;
