//! Helpers for tests of connections: changes of queue pairs, and iWARP's terms.

use std::net::IpAddr;

use nichrome_rdma::iwarp::{Role, Terms};
use nichrome_rdma::{Access, AddressVector, PathMtu, Psn, QpChange, QpNumber, QpState, RnrTimer};
use nichrome_wire::iwarp::Crc;

/// The terms of a connection of iWARP.
pub(crate) const TERMS: Terms = Terms {
    role: Role::Initiator,
    crc: Crc::Unused,
    markers_out: false,
    markers_in: false,
    ird: 1,
    ord: 1,
    rtr: None,
    extended: false,
    max_ulpdu: Terms::LONGEST_ULPDU,
};

/// Returns the changes that move a queue pair from RESET to INIT, and from there to RTR with this peer.
pub(crate) fn to_receive_from(peer: IpAddr, number: QpNumber) -> [QpChange; 2] {
    let init = QpChange {
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::REMOTE_WRITE),
        ..QpChange::to(QpState::Init)
    };
    let ready_to_receive = QpChange {
        path: Some(AddressVector::to(peer)),
        path_mtu: Some(PathMtu::B1024),
        destination: Some(number),
        rq_psn: Some(Psn::new(0)),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: RnrTimer::new(12),
        ..QpChange::to(QpState::Rtr)
    };
    [init, ready_to_receive]
}
