//! Steers RoCE's datagrams to one of several processes at an address.
//!
//! The process's slot is in the top bits of the receiving queue pair's number. All processes share queue pair
//! 1: management datagrams have the slot in the top bits of the communication identifier that the receiver
//! chose. Requests name a service port, whose process the kernel knows. Requests for a port without a process
//! go to a socket from which all processes receive.

use nichrome_cm::CommIdPrefix;
use nichrome_port::udp::{ManagementSteering, SPACES, ServicePort, Steering};
use nichrome_wire::cm::PortSpace;

use crate::star::SLOT_BITS;

/// Bytes in front of a MAD: BTH and DETH.
const BEFORE_MAD: u32 = 12 + 8;

/// Bytes in front of a message: BTH, DETH and the MAD header.
const BEFORE_MESSAGE: u32 = BEFORE_MAD + 24;

/// Attributes of the MAD header (IBA 16.7.2).
const REQ: u16 = 0x10;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;

/// RoCE's steering.
pub(crate) const STEERING: Steering = Steering {
    byte: 5,
    bits: SLOT_BITS,
    others: None,
    management: Some(ManagementSteering {
        receiver: 4,
        queue_pair: 1,
        attribute: BEFORE_MAD + 16,
        requests: [REQ, SIDR_REQ],
        // The low half of the service ID.
        service: BEFORE_MESSAGE + 12,
        spaces: numbers_of_spaces(),
        // The request ID, which the receiver chose.
        reply: (SIDR_REP, BEFORE_MESSAGE),
        // The remote communication ID.
        others: BEFORE_MESSAGE + 4,
    }),
};

const fn numbers_of_spaces() -> [u16; SPACES] {
    let [ipoib, ib, tcp, udp] = PortSpace::ALL;
    [ipoib.number(), ib.number(), tcp.number(), udp.number()]
}

/// The slot that a datagram goes to by the receiving queue pair's number; `None` for management datagrams.
#[inline]
pub(crate) fn slot_of(datagram: &[u8]) -> Option<usize> {
    let receiver = datagram.get(5..8)?;
    let is_management = matches!(receiver, [0, 0, 0 | 1]);
    (!is_management).then(|| usize::from(receiver[0] >> (8 - SLOT_BITS)))
}

/// The service port, with the index of its port space in [`STEERING`].
pub(crate) fn service_port(space: PortSpace, port: u16) -> Option<ServicePort> {
    let space = PortSpace::ALL.iter().position(|other| *other == space)?;
    Some(ServicePort { space, port })
}

/// The prefix of the communication identifiers of a slot's process.
pub(crate) fn prefix_of(slot: usize) -> CommIdPrefix {
    CommIdPrefix { bits: SLOT_BITS as u8, value: slot as u16 }
}
