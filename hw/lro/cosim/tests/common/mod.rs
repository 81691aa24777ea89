//! Frames for several tests.

use nichrome_wire::{SeqNumber, TcpFrame};

/// Segment `nth` of `flows` connections in turn, with `len` bytes of payload.
pub fn segment_in_turn(nth: u32, len: usize, flows: u32) -> Vec<u8> {
    let frame = TcpFrame {
        src_port: 4000 + (nth % flows) as u16,
        seq: SeqNumber(nth / flows * len as u32),
        payload: vec![nth as u8; len],
        ..TcpFrame::default()
    };
    frame.build()
}
