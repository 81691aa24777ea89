//! The part of a device's configuration that is RoCE's.

use nichrome_wire::rdma::ROCE_PORT;

use crate::congestion::Congestion;

/// Whether lost packets are retransmitted one by one. The offer is a bit of each packet that the standard
/// reserves and that other implementations ignore; with them, everything after a loss is retransmitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SelectiveRepeat {
    /// Offered, and used with peers that offer it.
    #[default]
    Offered,
    /// Neither offered nor used.
    Never,
}

/// How a device speaks RoCE.
#[derive(Clone, Debug)]
pub struct RoceConfig {
    /// The UDP source port of sent datagrams.
    pub source_port: u16,
    /// The congestion controller of its connections.
    pub congestion: Congestion,
    /// Whether lost packets are retransmitted one by one.
    pub selective_repeat: SelectiveRepeat,
    /// Packets that arrived ahead of lost ones and are kept, of all queue pairs together. The queue pairs
    /// that keep any at the same time take up to 240 KB each besides the payloads, which others use later.
    pub held_packets: usize,
    /// Whether the driver sees IPv4 identifications, and has changed every ICRC to identification 0
    /// ([`IcrcChecker::change_ident`](nichrome_wire::rdma::IcrcChecker::change_ident)): then an ICRC is right
    /// or wrong. Otherwise an ICRC is accepted that is right for an identification to be expected from the
    /// peer.
    pub sees_identifications: bool,
    /// How long an acknowledgement waits for the answer of a program, to leave together with it.
    /// Nanoseconds; 0 for never.
    pub acknowledgement_delay: u64,
}

impl Default for RoceConfig {
    fn default() -> Self {
        Self {
            source_port: ROCE_PORT,
            congestion: Congestion::Window,
            selective_repeat: SelectiveRepeat::default(),
            held_packets: 4096,
            sees_identifications: false,
            acknowledgement_delay: 0,
        }
    }
}
