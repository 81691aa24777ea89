//! The part of a device's configuration that is RoCE's.

use nichrome_wire::rdma::ROCE_PORT;

use crate::congestion::Congestion;

/// Whether the requester retransmits lost packets one by one. Devices offer this by a bit of each packet that
/// the standard reserves and other implementations ignore; with these, the requester retransmits everything
/// after a loss.
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
    /// Maximum number of packets that responders keep because they arrived ahead of lost ones, of all queue
    /// pairs together. A queue pair that keeps packets takes up to 240 KB besides the payloads, which others
    /// reuse later.
    pub held_packets: usize,
    /// Whether the driver sees IPv4 identifications, and has changed every ICRC to identification 0
    /// ([`IcrcChecker::change_ident`](nichrome_wire::rdma::IcrcChecker::change_ident)): then an ICRC is right
    /// or wrong. Otherwise an ICRC is accepted if it is right for an identification that the peer is likely
    /// to use.
    pub sees_identifications: bool,
    /// Nanoseconds by which an ACK is delayed, to leave together with the program's answer; 0 disables
    /// delays.
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
