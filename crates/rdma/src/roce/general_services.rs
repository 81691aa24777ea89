//! The general services interface: management datagrams between the queue pairs 1 of two adapters (IBA
//! 13.5.4, annex A17.9.2).
//!
//! Closed until a driver opens it: until then datagrams for queue pair 1 are dropped as for any unknown queue
//! pair.

use std::collections::VecDeque;
use std::net::IpAddr;

use nichrome_wire::cm::{GSI_QKEY, MAD_LEN};
use nichrome_wire::rdma::{Bth, BthFlags, DatagramWriter, Deth, Message, PKey, Psn, QpNumber, Repr};

use super::packet::{Incoming, is_of_partition};
use crate::core::counters::Counters;
use crate::net::{Room, Route, SteeringKey};

/// Maximum number of datagrams in each direction that wait for the driver. Further ones are dropped; peers
/// and the connection manager retransmit.
const MAX_QUEUED: usize = 1024;

/// A management datagram: one MAD, SEND-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementDatagram {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// The MAD.
    pub payload: [u8; MAD_LEN],
}

/// Queue pair 1 of a device.
#[derive(Default)]
pub(crate) struct GeneralServices {
    is_open: bool,
    received: VecDeque<ManagementDatagram>,
    /// Datagrams to send, with their routes.
    outgoing: VecDeque<(Route, [u8; MAD_LEN])>,
    /// PSN of the next datagram sent. Receivers ignore it.
    psn: Psn,
}

impl GeneralServices {
    /// Accepts datagrams from now on.
    pub(crate) fn open(&mut self) {
        self.is_open = true;
    }

    /// Returns true if a received datagram waits.
    #[inline]
    pub(crate) fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    /// Takes the oldest received datagram.
    pub(crate) fn take_received(&mut self) -> Option<ManagementDatagram> {
        self.received.pop_front()
    }

    /// Queues a datagram, or drops and counts it.
    pub(super) fn send(&mut self, route: Route, payload: [u8; MAD_LEN], counters: &mut Counters) {
        if self.outgoing.len() < MAX_QUEUED {
            self.outgoing.push_back((route, payload));
        } else {
            counters.dropped_full += 1;
        }
    }

    /// Queues a received packet, or drops and counts it.
    pub(super) fn receive(
        &mut self,
        message: &Message,
        pkey: PKey,
        incoming: &Incoming<'_>,
        is_icrc_valid: bool,
        counters: &mut Counters,
    ) {
        let dropped = match (message, <[u8; MAD_LEN]>::try_from(incoming.payload)) {
            _ if !self.is_open || incoming.addresses.dst().is_multicast() => &mut counters.dropped_unknown,
            (Message::Ud(deth, None), _) if !is_of_partition(pkey) || deth.qkey != GSI_QKEY => {
                &mut counters.dropped_key
            }
            (Message::Ud(..), _) if !is_icrc_valid => &mut counters.dropped_icrc,
            (Message::Ud(deth, None), Ok(payload)) if deth.src_qp == QpNumber::GENERAL_SERVICES => {
                if self.received.len() < MAX_QUEUED {
                    let (source, destination) = (incoming.addresses.src(), incoming.addresses.dst());
                    counters.bytes_received += payload.len() as u64;
                    return self.received.push_back(ManagementDatagram { source, destination, payload });
                }
                &mut counters.dropped_full
            }
            _ => &mut counters.dropped_unknown,
        };
        *dropped += 1;
    }

    /// Builds queued datagrams in `room`. Returns true if more are queued than fit.
    pub(super) fn write(&mut self, room: &mut Room<'_>, counters: &mut Counters) -> bool {
        while let Some((route, payload)) = self.outgoing.front() {
            let deth = Deth { qkey: GSI_QKEY, src_qp: QpNumber::GENERAL_SERVICES };
            let (flags, pkey) = (BthFlags::MIGRATED, PKey::default());
            let bth = Bth { flags, pkey, dest_qp: QpNumber::GENERAL_SERVICES, psn: self.psn };
            let repr = Repr { bth, message: Message::Ud(deth, None) };
            let len = repr.datagram_len(payload.len());
            if !room.fits(route, SteeringKey::MANAGEMENT, len) {
                return true;
            }
            let ident = room.count() as u16;
            if let Some(mut writer) =
                DatagramWriter::new(&repr, payload.len(), &route.flow, ident, room.free())
            {
                writer.payload().copy_from_slice(payload);
                writer.finish();
                room.add(*route, SteeringKey::MANAGEMENT, len);
                self.psn = self.psn.next();
                counters.sent += 1;
                counters.bytes_sent += payload.len() as u64;
            }
            self.outgoing.pop_front();
        }
        false
    }
}
