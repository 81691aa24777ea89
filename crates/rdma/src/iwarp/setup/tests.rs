use nichrome_wire::Instant;
use nichrome_wire::iwarp::{
    Crc, Enhanced, Fpdu, MpaError, MpaFlags, MpaFrame, MpaFrameKind, Opcode, Rtr, Segment, TerminateCode,
    Terminated,
};
use proptest::prelude::*;

use super::*;
use crate::iwarp::{Role, RtrMessage};

const ALL: Rtr = Rtr { send: true, write: true, read: true };

fn initiator(options: Options) -> Initiator {
    Initiator::new(options, b"hello", Instant::ZERO)
}

/// Starts a connection between an initiator and a responder of this crate.
fn start(ours: Options, theirs: Options) -> (Established, Established) {
    let (mut caller, mut listener) = (initiator(ours), Responder::new(Instant::ZERO));
    assert_eq!(listener.receive(&caller.take_output()), Ok(Some(&b"hello"[..])));
    let accepted = listener.accept(&theirs, b"welcome").unwrap();
    let connected = caller.receive(&listener.take_output()).unwrap().expect("the Reply is complete");
    assert_eq!((&accepted.private_data[..], &connected.private_data[..]), (&b"hello"[..], &b"welcome"[..]));
    (connected, accepted)
}

/// Returns the initiator's answer to a Reply with these fields.
fn answer(
    options: Options,
    revision: u8,
    flags: MpaFlags,
    enhanced: Option<Enhanced>,
) -> (Result<Option<Established>, SetupError>, Vec<u8>) {
    let mut reply = Vec::new();
    MpaFrame { kind: MpaFrameKind::Reply, flags, revision, enhanced, private_data: b"no" }.write(&mut reply);
    let mut caller = initiator(options);
    caller.take_output();
    (caller.receive(&reply), caller.take_output())
}

fn terminated(fpdu: &[u8], crc: Crc) -> TerminateCode {
    let fpdu = Fpdu::parse(fpdu, crc).unwrap().unwrap();
    let (segment, payload) = Segment::parse(fpdu.ulpdu).unwrap();
    assert_eq!(segment.opcode, Opcode::Terminate);
    Terminated::from_bytes(payload).unwrap().error
}

#[test]
fn crc_is_used_if_either_end_requests_it_and_markers_if_the_receiver_does() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let options = |crc, markers| Options { crc, markers, ..Options::default() };
        let (connected, accepted) = start(options(ours, theirs), options(theirs, ours));
        let used = if ours || theirs { Crc::Used } else { Crc::Unused };
        assert_eq!([connected.terms.crc, accepted.terms.crc], [used; 2]);
        assert_eq!((connected.terms.markers_in, connected.terms.markers_out), (theirs, ours));
        assert_eq!((accepted.terms.markers_in, accepted.terms.markers_out), (ours, theirs));
    }
}

#[test]
fn each_end_sends_no_more_reads_than_the_other_takes() {
    let depths = |ird, ord| Options { ird, ord, ..Options::default() };
    let (connected, accepted) = start(depths(4, 20), depths(8, 16));
    assert_eq!((connected.terms.ird, connected.terms.ord), (4, 8));
    assert_eq!((accepted.terms.ird, accepted.terms.ord), (8, 4));
}

#[test]
fn depths_that_are_not_negotiated_stay_as_requested() {
    let (options, unknown) = (Options { ird: 3, ord: 7, ..Options::default() }, Enhanced::default());
    let (connected, _) = answer(options, 2, MpaFlags::default(), Some(unknown));
    let terms = connected.unwrap().unwrap().terms;
    assert_eq!((terms.ird, terms.ord), (3, 7));
}

#[test]
fn revision_one_has_no_depths_and_no_peer_to_peer_mode() {
    let old = Options { revision: Revision::One, ord: 99, rtr: ALL, ..Options::default() };
    let (connected, accepted) = start(old, Options { ord: 5, ..Options::default() });
    assert_eq!((connected.terms.ord, connected.terms.rtr), (99, None));
    assert_eq!((accepted.terms.ord, accepted.terms.rtr), (5, None));
    assert_eq!([connected.terms.role, accepted.terms.role], [Role::Initiator, Role::Responder]);
    let (downgraded, _) = answer(Options { rtr: ALL, ..Options::default() }, 1, MpaFlags::default(), None);
    assert_eq!(downgraded.unwrap().unwrap().terms.rtr, None);
    let (above, _) = answer(old, 2, MpaFlags::default(), None);
    assert_eq!(above, Err(SetupError::Revision(2)));
}

#[test]
fn the_responder_chooses_one_of_the_offered_messages() {
    let none = Rtr::default();
    for (offered, chosen) in [
        (Rtr { send: true, ..none }, RtrMessage::Send),
        (Rtr { write: true, ..none }, RtrMessage::Write),
        (Rtr { read: true, ..none }, RtrMessage::Read),
        (Rtr { send: true, read: true, ..none }, RtrMessage::Read),
        (ALL, RtrMessage::Write),
    ] {
        let (connected, accepted) = start(Options { rtr: offered, ..Options::default() }, Options::default());
        assert_eq!([connected.terms.rtr, accepted.terms.rtr], [Some(chosen); 2]);
    }
}

/// Chelsio's RNICs offer only a READ by default. A program that accepts no READs has IRD 0.
#[test]
fn an_end_that_takes_no_reads_takes_the_one_of_a_peer_that_offers_nothing_else() {
    let offered = Options { rtr: Rtr { read: true, ..Rtr::default() }, ..Options::default() };
    let (connected, accepted) = start(offered, Options { ird: 0, ..Options::default() });
    assert_eq!((accepted.terms.ird, connected.terms.ord), (1, 1));
    let written = Options { rtr: ALL, ..Options::default() };
    let (connected, accepted) = start(written, Options { ird: 0, ..Options::default() });
    assert_eq!((accepted.terms.ird, connected.terms.ord), (0, 0));
}

#[test]
fn a_choice_that_was_not_offered_is_terminated() {
    let offered = Options { rtr: Rtr { write: true, ..Rtr::default() }, ..Options::default() };
    let chosen =
        Enhanced { peer_to_peer: true, rtr: Rtr { read: true, ..Rtr::default() }, ..Enhanced::default() };
    let (refused, output) = answer(offered, 2, MpaFlags::default(), Some(chosen));
    assert_eq!(refused, Err(SetupError::Rtr));
    assert_eq!(terminated(&output, Crc::Unused), TerminateCode::RTR);
}

#[test]
fn a_request_that_offers_no_message_is_rejected() {
    let enhanced = Some(Enhanced { peer_to_peer: true, ..Enhanced::default() });
    let (kind, flags) = (MpaFrameKind::Request, MpaFlags::default());
    let mut request = Vec::new();
    MpaFrame { kind, flags, revision: 2, enhanced, private_data: &[] }.write(&mut request);
    let mut listener = Responder::new(Instant::ZERO);
    listener.receive(&request).unwrap();
    assert_eq!(listener.accept(&Options::default(), b"yes"), Err(SetupError::Rtr));
    let output = listener.take_output();
    assert!(MpaFrame::parse(&output).unwrap().unwrap().0.flags.reject);
}

#[test]
fn more_reads_than_this_end_takes_are_terminated() {
    let reply = Some(Enhanced { ird: Some(1), ord: Some(17), ..Enhanced::default() });
    let crc = MpaFlags { crc: true, ..MpaFlags::default() };
    let (refused, output) = answer(Options::default(), 2, crc, reply);
    assert_eq!(refused, Err(SetupError::Ird { ord: 17, ird: 16 }));
    assert_eq!(terminated(&output, Crc::Used), TerminateCode::IRD);
    let (_, output) = answer(Options::default(), 2, MpaFlags { markers: true, ..crc }, reply);
    assert!(output.is_empty());
}

#[test]
fn a_rejection_carries_private_data() {
    let (mut caller, mut listener) = (initiator(Options::default()), Responder::new(Instant::ZERO));
    listener.receive(&caller.take_output()).unwrap();
    listener.reject(b"busy");
    assert_eq!(caller.receive(&listener.take_output()), Err(SetupError::Rejected(b"busy".to_vec())));
    assert!(caller.take_output().is_empty());
}

#[test]
fn data_behind_the_request_is_refused_and_behind_the_reply_taken() {
    let mut caller = initiator(Options::default());
    let mut listener = Responder::new(Instant::ZERO);
    let early = [caller.take_output(), vec![0]].concat();
    assert_eq!(listener.receive(&early), Err(SetupError::EarlyData));
    let mut listener = Responder::new(Instant::ZERO);
    listener.receive(&initiator(Options::default()).take_output()).unwrap();
    listener.accept(&Options::default(), &[]).unwrap();
    let reply = [&listener.take_output()[..], b"FPDU"].concat();
    assert_eq!(caller.receive(&reply).unwrap().unwrap().rest, b"FPDU");
}

#[test]
fn the_wrong_frame_is_refused() {
    let (mut one, mut other) = (initiator(Options::default()), initiator(Options::default()));
    assert_eq!(one.receive(&other.take_output()), Err(SetupError::WrongFrame));
    let (mut listener, mut second) = (Responder::new(Instant::ZERO), Responder::new(Instant::ZERO));
    assert_eq!(listener.accept(&Options::default(), &[]), Err(SetupError::WrongFrame));
    listener.reject(&[]);
    assert!(listener.take_output().is_empty());
    listener.receive(&one.take_output()).unwrap();
    listener.accept(&Options::default(), &[]).unwrap();
    assert_eq!(second.receive(&listener.take_output()), Err(SetupError::WrongFrame));
}

#[test]
fn lengths_that_lie_and_garbage_are_refused() {
    for (bytes, error) in [
        (&b"GET / HTTP/1.1"[..], MpaError::Key),
        (b"MPA ID Req Frame\0\x02\x02\x01", MpaError::PrivateData(513)),
        (b"MPA ID Req Frame\x10\x02\0\x03", MpaError::NotEnhanced),
        (b"MPA ID Req Frame\0\x07", MpaError::Revision(7)),
    ] {
        let mut listener = Responder::new(Instant::ZERO);
        assert_eq!(listener.receive(bytes), Err(error.into()), "{bytes:?}");
        assert!(listener.take_output().is_empty());
    }
}

#[test]
fn split_anywhere_the_frames_mean_the_same() {
    let mut request = initiator(Options { rtr: ALL, ..Options::default() }).take_output();
    let whole = request.len();
    for split in 0..=whole {
        let mut caller = initiator(Options { rtr: ALL, ..Options::default() });
        let mut listener = Responder::new(Instant::ZERO);
        request = caller.take_output();
        assert_eq!(listener.receive(&request[..split]).unwrap().is_some(), split == whole);
        assert_eq!(listener.receive(&request[split..]), Ok(Some(&b"hello"[..])));
        listener.accept(&Options::default(), &[7; 40]).unwrap();
        let reply = listener.take_output();
        let cut = reply.len() * split / whole;
        let first = caller.receive(&reply[..cut]).unwrap();
        let connected = first.or_else(|| caller.receive(&reply[cut..]).unwrap()).unwrap();
        assert_eq!((&connected.private_data[..], connected.rest.len()), (&[7; 40][..], 0));
    }
}

#[test]
fn an_end_of_this_crate_has_the_operations_of_rfc_7306() {
    let number = |value| crate::QpNumber::new(value).unwrap();
    let ours = Identity { from: number(0x12_3456), to: number(0xAB_CDEF) };
    let bytes = ours.to_bytes();
    assert_eq!(bytes, *b"NiCr\x01\x12\x34\x56\0\xAB\xCD\xEF");
    assert_eq!(Identity::parse(&bytes), Some(ours));
    assert_eq!(Identity::parse(&[&bytes[..], &[0]].concat()), None);
    assert_eq!([Identity::parse(b"NiCr"), Identity::parse(b"NiCr\x02\x12\x34\x56\0\xAB\xCD\xEF")], [None; 2]);
    let mut caller = Initiator::new(Options::default(), &bytes, Instant::ZERO);
    let mut listener = Responder::new(Instant::ZERO);
    listener.receive(&caller.take_output()).unwrap();
    assert!(listener.accept(&Options::default(), b"other").unwrap().terms.extended);
    assert!(!caller.receive(&listener.take_output()).unwrap().unwrap().terms.extended);
}

#[test]
fn a_silent_peer_has_ten_seconds_for_the_reply_and_five_for_the_request() {
    assert_eq!(initiator(Options::default()).deadline(), Instant::ZERO + REPLY_TIMEOUT);
    assert_eq!(Responder::new(Instant::ZERO).deadline(), Instant::ZERO + REQUEST_TIMEOUT);
    assert_eq!((REPLY_TIMEOUT.as_secs(), REQUEST_TIMEOUT.as_secs()), (10, 5));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_kept_within_a_frame(bytes in proptest::collection::vec(any::<u8>(), 0..700), piece in 1..50_usize) {
        let mut listener = Responder::new(Instant::ZERO);
        let mut caller = initiator(Options::default());
        for piece in [&b"MPA ID Req Frame"[..], &bytes].concat().chunks(piece) {
            if listener.receive(piece).is_err() { break; }
        }
        for piece in [&b"MPA ID Rep Frame"[..], &bytes].concat().chunks(piece) {
            if !matches!(caller.receive(piece), Ok(None)) { break; }
        }
    }
}
