//! MPA's start-up with the frames that siw sent.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use nichrome_rdma::Instant;
use nichrome_rdma::iwarp::Role;
use nichrome_rdma::iwarp::setup::{Initiator, Options, Responder};
use nichrome_wire::iwarp::Crc;

/// Returns the start frames in siw's capture that begin with this key.
fn frames(key: &[u8]) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures/siw-verbs.pcap");
    let capture = std::fs::read(path).unwrap();
    let starts = capture.windows(key.len()).enumerate().filter(|(_, bytes)| *bytes == key);
    let frame = |at: usize| {
        let len = 20 + usize::from(u16::from_be_bytes([capture[at + 18], capture[at + 19]]));
        capture[at..at + len].to_vec()
    };
    starts.map(|(at, _)| frame(at)).collect()
}

#[test]
fn siw_as_the_initiator_is_accepted() {
    let requests = frames(b"MPA ID Req Frame");
    assert_eq!(requests.len(), 11);
    for request in requests {
        let mut listener = Responder::new(Instant::ZERO);
        assert!(listener.receive(&request).unwrap().is_some());
        let accepted = listener.accept(&Options::default(), &[]).unwrap();
        assert_eq!((accepted.terms.role, accepted.terms.rtr), (Role::Responder, None));
        assert!(!accepted.terms.extended && !accepted.terms.markers_out);
        assert_eq!(listener.take_output()[..18], *b"MPA ID Rep Frame\x10\x02");
    }
}

#[test]
fn siw_as_the_responder_bounds_the_reads() {
    let options = Options { ird: 128, ord: 200, ..Options::default() };
    let mut ords = Vec::new();
    for reply in frames(b"MPA ID Rep Frame") {
        let mut caller = Initiator::new(options, &[], Instant::ZERO);
        let connected = caller.receive(&reply).unwrap().expect("a whole Reply");
        assert!(connected.rest.is_empty() && !connected.terms.extended);
        assert_eq!(connected.terms.crc, Crc::Unused);
        ords.push(connected.terms.ord);
    }
    // Programs that only SEND request no READs.
    assert_eq!(ords, [1, 1, 0, 0, 0, 128, 0, 0, 0, 0, 1]);
}
