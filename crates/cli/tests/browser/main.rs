//! Pages in a browser: Chromium without a window.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod book;
mod chromium;
mod live;
mod reports;
