//! Requests whose PSNs are used again after 2²⁴ packets.

use crate::common::{ALL, BASE, Link, Pair, datagram};
use nichrome_rdma::*;
use nichrome_wire::rdma::{
    AtomicEth, Bth, BthFlags, Message, PKey, Part, Psn, RcMessage, Repr, Reth, SendEnd,
};

/// Bytes of the longest message, and its packets of 256 bytes.
const LONGEST: u32 = 1 << 30;
const PACKETS: u32 = LONGEST / 256;

/// An atomic whose answer is kept, and READs behind it which take all other PSNs.
#[test]
fn an_answer_of_an_earlier_cycle_is_not_sent_again() {
    let mut pair = Pair::new();
    let link = Link { mtu: PathMtu::B256, rd_atomic: 16, psn: 7, timeout: 0, ..Link::default() };
    let [_, b] = pair.connect(QpType::Rc, &link);
    let everything = RegionConfig { paging: Paging::OnDemand, ..RegionConfig::new(0, u64::MAX, ALL) };
    let (_, RegionReport { rkey, .. }) = pair.ends[1].register(everything);
    pair.ends[1].receive(b, 5, 0, 8);
    let dest_qp = pair.ends[1].device.qp_number(b).unwrap();
    let packet = |psn: Psn, message| {
        let bth = Bth { flags: BthFlags::MIGRATED, pkey: PKey::default(), dest_qp, psn };
        datagram(0, &Repr { bth, message: Message::Rc(message) }, &[])
    };
    let first = Psn::new(link.psn);
    let atomic = packet(first, RcMessage::FetchAdd(AtomicEth { va: BASE, rkey, swap_or_add: 1, compare: 0 }));
    pair.inject(1, &atomic);
    pair.transmit();
    // The answer may have been lost: the responder sends it again.
    pair.inject(1, &atomic);
    pair.transmit();
    assert_eq!(pair.ends[1].device.counters().dropped_stale, 0);
    let mut psn = first.next();
    for len in [LONGEST, LONGEST, LONGEST, LONGEST - 256] {
        pair.inject(1, &packet(psn, RcMessage::ReadRequest(Reth { va: BASE, rkey, len })));
        psn += len / 256;
    }
    assert_eq!((psn, PACKETS), (first, 1 << 22));
    pair.inject(1, &packet(psn, RcMessage::Send(Part::Only((), SendEnd::Plain))));
    assert_eq!(pair.ends[1].statuses(), [(5, Status::Success)]);
    pair.inject(1, &atomic);
    let counters = pair.ends[1].device.counters();
    assert_eq!((counters.duplicates, counters.dropped_stale), (2, 1));
}
