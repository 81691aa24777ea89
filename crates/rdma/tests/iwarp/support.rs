//! Terms, and pairs that are connected on them.

use nichrome_rdma::iwarp::{Role, RtrMessage, Terms};
use nichrome_rdma::*;
use nichrome_wire::iwarp::Crc;

use crate::common::{Link, Pair};

/// The terms of two ends of this crate; end 0 is the initiator.
pub(crate) const TERMS: Terms = Terms {
    role: Role::Initiator,
    crc: Crc::Used,
    markers_out: false,
    markers_in: false,
    ird: 4,
    ord: 4,
    rtr: Some(RtrMessage::Write),
    extended: true,
    max_ulpdu: Terms::LONGEST_ULPDU,
};

/// Terms of both ends; `terms` are those of the initiator, end 0.
pub(crate) fn both(terms: Terms) -> [Terms; 2] {
    let Terms { markers_out, markers_in, ird, ord, .. } = terms;
    let responder = Terms {
        role: Role::Responder,
        markers_out: markers_in,
        markers_in: markers_out,
        ird: ord,
        ord: ird,
        ..terms
    };
    [terms, responder]
}

/// A connected pair.
pub(crate) fn connected(terms: Terms) -> (Pair, [QpHandle; 2]) {
    let mut pair = Pair::new();
    let qps = pair.connect_iwarp(&Link::default(), both(terms));
    (pair, qps)
}
