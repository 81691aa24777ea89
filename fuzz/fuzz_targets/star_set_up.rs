//! Any bytes as what a peer says in StaR's set-up.
#![no_main]

use nichrome_rdma::star::{MAX_REGIONS, Offer, QueueDepth, Receives, Room, Setup, SetupEvent, Timers, Wish};
use nichrome_rdma::{Access, PathMtu, QpNumber};
use nichrome_wire::SeqNumber;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let offer = |wish| Offer {
        wish,
        room: Room::Free,
        receives: Receives::Own,
        connection: QpNumber::new(1).unwrap_or_default(),
        peer_connection: None,
        address: [10, 0, 0, 1].into(),
        path_mtu: PathMtu::B1024,
        access: Access::NONE,
        first_element: SeqNumber(0),
        depth: QueueDepth::default(),
        timers: Timers::default(),
    };
    let mut honest = Setup::new(offer(Wish::Own));
    let mut setup = Setup::new(offer(Wish::Peers));
    // If the first byte is even, the peer begins with a valid OFFER.
    if bytes.first().is_some_and(|first| first.is_multiple_of(2)) {
        let _ = setup.receive(&honest.take_output());
    }
    for piece in bytes.chunks(13) {
        if let Ok(Some(SetupEvent::Accept(_, admission))) = setup.receive(piece) {
            assert!(admission.regions.len() <= MAX_REGIONS);
        }
    }
    let _ = setup.end();
});
