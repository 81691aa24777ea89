//! Connection management against independent implementations: a capture of Linux's rxe, tshark; and
//! properties of any message.

mod captures;
mod generated;
mod properties;
mod tshark_reads;
