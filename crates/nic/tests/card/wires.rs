//! A wire within the process.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use nichrome_nic::{MemoryWire, memory_directions, memory_wire};
use nichrome_port::{Piece, TransmitError, Unsent, WireFrame, WireQueue, clock};
use nichrome_tso::{Limit, Segments, complete_checksum};
use nichrome_wire::{ChecksumState, Network, TcpFrame, VirtioNetHeader, VirtioNetRepr};

use crate::hosts::{FRAME_LEN, impaired};

/// More frames than a wire has room for.
const MANY: usize = 100_000;

/// Sends a frame whose checksums are valid.
fn send(wire: &mut impl WireQueue, frame: impl Into<Piece>) -> Result<(), Unsent> {
    wire.transmit_whole(frame.into(), ChecksumState::Valid, clock::now())
}

/// Sends frames until the wire is full; returns their number.
fn fill(wire: &mut MemoryWire) -> usize {
    let sent = (0..MANY).take_while(|_| send(wire, vec![9; FRAME_LEN]).is_ok()).count();
    wire.flush().unwrap();
    sent
}

/// Returns true if a reader that waits is woken.
fn is_readable(wire: &impl AsFd) -> bool {
    let [readable] = clock::wait([wire.as_fd()], Some(clock::now())).unwrap();
    readable
}

#[test]
fn checksums_are_valid_at_the_reader_if_they_were_at_the_sender_and_no_bit_flipped() {
    let flags = |settings: &[(&str, &str)], checksum| {
        let [mut near, mut far] = memory_wire(&impaired(settings), 1, FRAME_LEN).unwrap();
        near.transmit_whole(vec![9; FRAME_LEN].into(), checksum, clock::now()).unwrap();
        let mut batch = Vec::new();
        far.receive(&mut batch, 1).unwrap();
        (batch[0].buffer.as_ref() == [9; FRAME_LEN], batch[0].virtio.flags)
    };
    assert_eq!(flags(&[], ChecksumState::Valid), (true, VirtioNetHeader::DATA_VALID));
    assert_eq!(flags(&[], ChecksumState::Unchecked), (true, 0));
    assert_eq!(flags(&[("corrupt", "100%")], ChecksumState::Valid), (false, 0));
}

#[test]
fn partial_checksums_are_completed_before_a_bit_flips_and_for_fragments() {
    let mut network = Network::default();
    if let Network::Ipv4 { dont_fragment, .. } = &mut network {
        *dont_fragment = false;
    }
    let whole = TcpFrame { network, payload: vec![7; FRAME_LEN - 54], ..TcpFrame::default() }.build();
    let mut segments = Segments::within(&whole, Limit::Packet(1500)).unwrap();
    let partial = segments.leave_tcp_checksums().unwrap();
    let mut frame = Vec::new();
    segments.append_next(&mut frame);
    let received = |settings: &[(&str, &str)]| {
        let [mut near, mut far] = memory_wire(&impaired(settings), 1, FRAME_LEN).unwrap();
        near.transmit_whole(frame.clone().into(), partial, clock::now()).unwrap();
        let mut batch = Vec::new();
        far.receive(&mut batch, 2).unwrap();
        let frames: Vec<_> = batch.iter().map(|frame| frame.buffer.as_ref().to_vec()).collect();
        let state = VirtioNetRepr::parse(&batch[0].virtio, frames[0].len()).unwrap().checksum;
        (frames, state)
    };
    assert_eq!(received(&[]), (vec![frame.clone()], partial));
    let (frames, state) = received(&[("corrupt", "100%")]);
    let differing: u32 = frames[0].iter().zip(&whole).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!((differing, state), (1, ChecksumState::Unchecked));
    let (frames, state) = received(&[("mtu", "1000")]);
    let headers = 14 + 20;
    let fragmented: Vec<u8> = frames.iter().flat_map(|frame| frame[headers..].to_vec()).collect();
    assert!(frames.len() == 2 && fragmented == whole[headers..] && state == ChecksumState::Valid);
    complete_checksum(&mut frame, &VirtioNetRepr { checksum: partial, gso: None }).unwrap();
    assert!(frame == whole);
}

#[test]
fn a_full_wire_leaves_the_frame_to_its_sender() {
    let [mut near, mut far] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let sent = fill(&mut near);
    assert!((1..MANY).contains(&sent), "{sent}");
    let Unsent { frame, error } = send(&mut near, vec![8; FRAME_LEN]).unwrap_err();
    assert_eq!((&*frame, error), (&[8; FRAME_LEN][..], TransmitError::Full));
    far.receive(&mut Vec::new(), 1).unwrap();
    send(&mut near, frame).unwrap();
    let Unsent { frame, error } = send(&mut near, vec![8; FRAME_LEN + 1]).unwrap_err();
    let too_long = TransmitError::Length { len: FRAME_LEN + 1, max: FRAME_LEN };
    assert_eq!((frame.len(), error), (FRAME_LEN + 1, too_long));
}

#[test]
fn a_reader_gets_the_frames_that_it_asks_for_and_is_woken_for_the_others() {
    for loss in ["0%", "50%", "100%"] {
        let [mut near, mut far] = memory_wire(&impaired(&[("loss", loss)]), 1, FRAME_LEN).unwrap();
        let sent = fill(&mut near) as u64;
        let mut batch: Vec<WireFrame<_>> = Vec::new();
        while is_readable(&far) {
            let before = batch.len();
            far.receive(&mut batch, before + 100).unwrap();
            assert!(batch.len() <= before + 100);
        }
        let stats = far.path().stats();
        assert_eq!((stats.packets_in, stats.packets_out), (sent, batch.len() as u64), "a loss of {loss}");
    }
}

#[test]
fn frames_that_are_read_after_their_delay_are_not_delayed_again() {
    let [mut near, mut far] = memory_wire(&impaired(&[("delay", "200ms")]), 1, FRAME_LEN).unwrap();
    let sent = fill(&mut near);
    thread::sleep(Duration::from_millis(200));
    let mut batch: Vec<WireFrame<_>> = Vec::new();
    while is_readable(&far) {
        let before = batch.len();
        far.receive(&mut batch, before + 100).unwrap();
    }
    assert_eq!(batch.len(), sent);
}

#[test]
fn a_packet_is_delayed_from_when_it_was_sent_however_late_it_is_received() {
    let [mut wire, _other] = memory_directions(&impaired(&[("delay", "60s")]), 1, FRAME_LEN).unwrap();
    let sent = clock::now();
    wire.transmit_whole(vec![9; FRAME_LEN].into(), ChecksumState::Valid, sent).unwrap();
    thread::sleep(Duration::from_millis(20));
    let mut batch = Vec::new();
    wire.receive(&mut batch, 10).unwrap();
    assert_eq!((batch.len(), wire.poll_timeout()), (0, Some(sent + Duration::from_secs(60))));
}

#[test]
fn a_direction_receives_what_is_sent_at_it_and_the_errors_of_the_other_one() {
    let sender = |settings: &[(&str, &str)]| {
        let [mut first, mut second] = memory_directions(&impaired(settings), 1, FRAME_LEN).unwrap();
        let whole = TcpFrame { payload: vec![7; FRAME_LEN - 54], ..TcpFrame::default() }.build();
        send(&mut first, whole.clone()).unwrap();
        first.flush().unwrap();
        assert!(!is_readable(&first), "who sends reads next, and needs no waker");
        let mut batches = [Vec::new(), Vec::new()];
        first.receive(&mut batches[0], 10).unwrap();
        let is_woken = is_readable(&second);
        second.receive(&mut batches[1], 10).unwrap();
        (
            whole,
            batches.map(|batch| batch.into_iter().map(|frame| frame.buffer).collect::<Vec<_>>()),
            is_woken,
        )
    };
    let (whole, [forth, back], is_woken) = sender(&[]);
    assert!(forth.len() == 1 && forth[0].as_ref() == whole && back.is_empty() && !is_woken);
    // An ICMP error may be longer than 300 bytes, but the path that it takes has the same MTU.
    for mtu in ["1000", "300"] {
        let (_, [forth, back], is_woken) = sender(&[("mtu", mtu)]);
        assert!(forth.is_empty() && back.len() == 1 && is_woken, "{mtu}");
        // ICMP to the sender: fragmentation is needed.
        let error = back[0].as_ref();
        assert_eq!((error[23], &error[34..36]), (1, &[3, 4][..]));
    }
}
