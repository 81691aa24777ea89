//! The NetFPGA 1G card of papers/lro-netfpga (Antichi, Callegari, Giordano: "Implementation of TCP Large
//! Receive Offload on Open Hardware Platform"), and the host that it is in.
//!
//! ```text
//! generator ─► 8 receive queues ─► input arbiter ─► data path [LRO module] ─► queue ─► PCI ─► ring ─► core [software LRO]
//! ```
//!
//! | part | the paper | here |
//! |---|---|---|
//! | receive queues, input arbiter | section 4: eight, served round robin | the same; the generator uses one port |
//! | data path | section 4, 5: 64 bits at 125 MHz | cycles for the words and the module header of each frame |
//! | LRO module | section 5 | the `netfpga` engine of nichrome-lro with real frames; an aggregate is read out word by word, its last word padded |
//! | non-TCP frames | section 5: checksums verified before a packet is forwarded | UDP checksums verified by the card (`protocol.rs`) or by the host |
//! | bus | section 4: standard PCI | transactions of one burst each: address, words, turnaround; and an overhead per packet |
//! | host | section 6: one of four cores handles the traffic | interrupts with a minimum interval, polling as in Linux's NAPI, a cost per operation |
//! | software LRO of the "NIC" | section 6: "the LRO support offered by the Linux kernel" | the `gro` engine, at the end of each poll |
//!
//! Not modelled: transmission, ACKs of the host, other load of the host, and Linux's own limits.

mod bus;
mod card;
mod clock;
mod host;
mod protocol;
mod runner;
mod world;

pub use runner::NetfpgaRunner;
