//! Attributes of a queue pair, and the attribute sets of its state transitions.

use std::net::IpAddr;
use std::ops::BitOr;

use nichrome_wire::TrafficClass;
use nichrome_wire::rdma::{PathMtu, Psn, QKey, QpNumber, RnrTimer};

use crate::core::access::Access;

/// The transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
    /// Extended reliable connection, initiator: it sends requests, and receives none.
    XrcSend,
    /// Extended reliable connection, target: it receives requests, which name the shared receive queue of
    /// their receives.
    XrcReceive,
}

impl QpType {
    /// Returns true if packets are acknowledged and retransmitted.
    #[inline]
    pub(crate) const fn is_reliable(self) -> bool {
        !matches!(self, Self::Uc | Self::Ud)
    }

    /// Returns true for both ends of an extended reliable connection.
    #[inline]
    pub(crate) const fn is_xrc(self) -> bool {
        matches!(self, Self::XrcSend | Self::XrcReceive)
    }
}

/// The state of a queue pair (IBA 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Initial state; posting fails.
    Reset,
    /// Receives can be posted, and are not processed yet.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained or draining: started requests complete, no other starts.
    Sqd,
    /// Send queue error: sends are flushed, receives are processed (UC and UD).
    Sqe,
    /// Error: all requests are flushed.
    Err,
}

/// The path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// Index of the source address in [`Config::addresses`](crate::Config::addresses).
    pub source_index: u8,
    /// The peer's address.
    pub destination: IpAddr,
    /// Traffic class (type of service) of sent packets.
    pub traffic_class: TrafficClass,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit (time to live) of sent packets.
    pub hop_limit: u8,
}

impl AddressVector {
    /// Creates a path from the device's first address to `destination`: traffic class 0, hop limit 64.
    pub const fn to(destination: IpAddr) -> Self {
        let traffic_class = TrafficClass(0);
        Self { source_index: 0, destination, traffic_class, flow_label: 0, hop_limit: 64 }
    }
}

/// Whether an event is raised when the send queue has drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DrainNotice {
    /// No event.
    #[default]
    Silent,
    /// [`crate::Event::SendQueueDrained`].
    Event,
}

/// Changes to a queue pair; `None` leaves an attribute unchanged. The transport service, the current and the
/// new state determine which attributes are required and which are allowed (IBA table 91).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpChange {
    /// The new state.
    pub state: Option<QpState>,
    /// The expected current state; the change fails in any other.
    pub current_state: Option<QpState>,
    /// Index into the partition key table. Must be 0: the table has one entry.
    pub pkey_index: Option<u16>,
    /// The port. Must be 1: a device has one port.
    pub port: Option<u8>,
    /// The operations that the peer may execute through this queue pair.
    pub access: Option<Access>,
    /// The Q_Key that received datagrams must carry.
    pub qkey: Option<QKey>,
    /// The path to the peer.
    pub path: Option<AddressVector>,
    /// The path MTU: payload of a full packet.
    pub path_mtu: Option<PathMtu>,
    /// The peer's queue pair.
    pub destination: Option<QpNumber>,
    /// PSN of the first packet received.
    pub rq_psn: Option<Psn>,
    /// PSN of the first packet sent.
    pub sq_psn: Option<Psn>,
    /// Retransmission timeout: 4.096 µs · 2ⁿ for 1 to 31, none for 0. Twice as long after the first
    /// retransmission, four times as long after all later ones, but prolonged to at most 4.096 µs · 2¹⁶ (268
    /// ms).
    pub timeout: Option<u8>,
    /// Maximum number of retransmissions without progress, 0 to 7.
    pub retry_count: Option<u8>,
    /// Maximum number of retries after an RNR NAK, 0 to 6; 7 is unlimited.
    pub rnr_retry: Option<u8>,
    /// The delay that this queue pair's RNR NAKs request.
    pub min_rnr_timer: Option<RnrTimer>,
    /// Maximum number of outstanding READs and atomics as requester.
    pub max_rd_atomic: Option<u8>,
    /// Maximum number of outstanding READs and atomics as responder.
    pub max_dest_rd_atomic: Option<u8>,
    /// Whether an event is raised when the send queue has drained.
    pub drain_notice: Option<DrainNotice>,
}

/// A set of attributes of a [`QpChange`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeMask(u32);

impl AttributeMask {
    /// No attribute.
    pub const NONE: Self = Self(0);
    pub(crate) const CURRENT_STATE: Self = Self(1);
    pub(crate) const PKEY_INDEX: Self = Self(1 << 1);
    pub(crate) const PORT: Self = Self(1 << 2);
    pub(crate) const ACCESS: Self = Self(1 << 3);
    pub(crate) const QKEY: Self = Self(1 << 4);
    pub(crate) const PATH: Self = Self(1 << 5);
    pub(crate) const PATH_MTU: Self = Self(1 << 6);
    pub(crate) const DESTINATION: Self = Self(1 << 7);
    pub(crate) const RQ_PSN: Self = Self(1 << 8);
    pub(crate) const SQ_PSN: Self = Self(1 << 9);
    pub(crate) const TIMEOUT: Self = Self(1 << 10);
    pub(crate) const RETRY_COUNT: Self = Self(1 << 11);
    pub(crate) const RNR_RETRY: Self = Self(1 << 12);
    pub(crate) const MIN_RNR_TIMER: Self = Self(1 << 13);
    pub(crate) const MAX_RD_ATOMIC: Self = Self(1 << 14);
    pub(crate) const MAX_DEST_RD_ATOMIC: Self = Self(1 << 15);
    pub(crate) const DRAIN_NOTICE: Self = Self(1 << 16);

    const NAMES: [&'static str; 17] = [
        "current state",
        "partition key index",
        "port",
        "access",
        "queue key",
        "path",
        "path MTU",
        "destination",
        "receive PSN",
        "send PSN",
        "timeout",
        "retry count",
        "RNR retry",
        "minimum RNR timer",
        "max_rd_atomic",
        "max_dest_rd_atomic",
        "drain notice",
    ];

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for AttributeMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl std::fmt::Display for AttributeMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = Self::NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1);
        for (nth, (_, name)) in named.enumerate() {
            write!(f, "{}{name}", if nth > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl QpChange {
    /// Creates a change of the state only.
    pub fn to(state: QpState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Returns the set of attributes that are `Some`, except the state.
    pub(crate) fn mask(&self) -> AttributeMask {
        let given = [
            self.current_state.is_some(),
            self.pkey_index.is_some(),
            self.port.is_some(),
            self.access.is_some(),
            self.qkey.is_some(),
            self.path.is_some(),
            self.path_mtu.is_some(),
            self.destination.is_some(),
            self.rq_psn.is_some(),
            self.sq_psn.is_some(),
            self.timeout.is_some(),
            self.retry_count.is_some(),
            self.rnr_retry.is_some(),
            self.min_rnr_timer.is_some(),
            self.max_rd_atomic.is_some(),
            self.max_dest_rd_atomic.is_some(),
            self.drain_notice.is_some(),
        ];
        AttributeMask(given.iter().enumerate().fold(0, |mask, (bit, given)| mask | u32::from(*given) << bit))
    }
}

/// The attributes that a state transition requires and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) required: AttributeMask,
    pub(crate) optional: AttributeMask,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_name_their_attributes() {
        let change = QpChange { sq_psn: Some(Psn::new(1)), port: Some(1), ..QpChange::default() };
        assert_eq!(change.mask().to_string(), "port, send PSN");
        assert_eq!(change.mask(), AttributeMask::PORT | AttributeMask::SQ_PSN);
        assert_eq!(change.mask().without(AttributeMask::PORT), AttributeMask::SQ_PSN);
    }
}
