//! Any bytes as what a peer sends in MPA's start-up.
#![no_main]

use nichrome_rdma::Instant;
use nichrome_rdma::iwarp::setup::{Initiator, Options, Responder};
use nichrome_wire::iwarp::Rtr;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let rtr = Rtr { send: true, write: true, read: true };
    let options = Options { rtr, ..Options::default() };
    let mut caller = Initiator::new(options, b"private", Instant::ZERO);
    for piece in bytes.chunks(13) {
        match caller.receive(piece) {
            Ok(None) => {}
            Ok(Some(connected)) => {
                assert!(connected.terms.ord <= options.ord && connected.rest.len() < 13);
                break;
            }
            Err(_) => break,
        }
    }
    let mut listener = Responder::new(Instant::ZERO);
    for piece in bytes.chunks(13) {
        match listener.receive(piece) {
            Ok(None) => {}
            Ok(Some(_)) => {
                // The Reply must be one that an initiator can read, or a rejection.
                let _ = listener.accept(&options, b"reply");
                assert!(!listener.take_output().is_empty());
                break;
            }
            Err(_) => break,
        }
    }
});
