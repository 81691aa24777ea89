//! The book: its commands run, and its links are valid.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod blocks;
mod commands;
mod links;
