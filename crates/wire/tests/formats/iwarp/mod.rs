//! iWARP against independent implementations: a capture of Linux's siw, tshark; and properties of any
//! message.

mod generated;
mod properties;
mod siw;
mod tshark_reads;
