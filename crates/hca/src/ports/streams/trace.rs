//! The TCP segments of a stream in a capture.
//!
//! A socket reports bytes, not segments: the headers are reconstructed, without losses and with an ACK on
//! each. A stream begins with a handshake at sequence number 0 of both ends, and each FPDU is a segment of
//! its own: Wireshark recognises iWARP by the start frames, and expects an FPDU at the front of each segment.

use std::mem;

use nichrome_wire::iwarp::Fpdu;
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::{AddressPair, HeaderOptions, Instant, SeqNumber, TcpFlags, TcpRepr};

use crate::connected_stream::Sender;
use crate::recorder::Capture;

/// Payload of a reconstructed segment at most, in bytes: an IPv4 packet's.
const MAX_SEGMENT: usize = 65_495;

const DATA: TcpFlags = TcpFlags::PSH.union(TcpFlags::ACK);

/// The capture of a stream.
#[derive(Debug)]
pub(super) struct Trace {
    /// From this adapter to the peer.
    flow: UdpFlow,
    local: Direction,
    peer: Direction,
}

/// One direction of a stream.
#[derive(Debug, Default)]
struct Direction {
    next: SeqNumber,
    /// Bytes of an incomplete FPDU.
    partial: Vec<u8>,
}

impl Trace {
    pub(super) fn new(flow: UdpFlow) -> Self {
        Self { flow, local: Direction::default(), peer: Direction::default() }
    }

    /// Adds TCP's handshake and the set-up of the stream.
    pub(super) fn record_set_up(&mut self, set_up: &[(Sender, Vec<u8>)], out: &mut Output<'_>) {
        let caller = set_up.first().map_or(Sender::Local, |(sender, _)| *sender);
        self.segment(caller, TcpFlags::SYN, &[], out);
        self.segment(caller.other(), TcpFlags::SYN | TcpFlags::ACK, &[], out);
        self.segment(caller, TcpFlags::ACK, &[], out);
        for (sender, bytes) in set_up {
            self.segment(*sender, DATA, bytes, out);
        }
    }

    /// Adds bytes of the stream, as far as they are whole FPDUs.
    pub(super) fn record(&mut self, sender: Sender, bytes: &[u8], out: &mut Output<'_>) {
        let mut joined = mem::take(&mut self.direction(sender).partial);
        joined.extend(bytes);
        let mut rest = &joined[..];
        while let Some(len) = Fpdu::len_of(rest)
            && let Some((fpdu, after)) = rest.split_at_checked(len)
        {
            for part in fpdu.chunks(MAX_SEGMENT) {
                self.segment(sender, DATA, part, out);
            }
            rest = after;
        }
        self.direction(sender).partial = rest.to_vec();
    }

    /// Adds the end of a direction.
    pub(super) fn record_end(&mut self, sender: Sender, out: &mut Output<'_>) {
        let partial = mem::take(&mut self.direction(sender).partial);
        for part in partial.chunks(MAX_SEGMENT) {
            self.segment(sender, DATA, part, out);
        }
        self.segment(sender, TcpFlags::FIN | TcpFlags::ACK, &[], out);
    }

    const fn direction(&mut self, sender: Sender) -> &mut Direction {
        match sender {
            Sender::Local => &mut self.local,
            Sender::Peer => &mut self.peer,
        }
    }

    fn segment(&mut self, sender: Sender, flags: TcpFlags, payload: &[u8], out: &mut Output<'_>) {
        let UdpFlow { addresses, src_port, dst_port } = self.flow;
        let ack = self.direction(sender.other()).next;
        let seq = self.direction(sender).next;
        let ((src_port, dst_port), addresses) = match sender {
            Sender::Local => ((src_port, dst_port), addresses),
            Sender::Peer => ((dst_port, src_port), reversed(addresses)),
        };
        let (options, window) = (HeaderOptions::NONE, 0xFFFF);
        let header = TcpRepr { src_port, dst_port, seq, ack, flags, window, urgent: 0, options };
        let counted = payload.len() as u32 + u32::from(flags.intersects(TcpFlags::SYN | TcpFlags::FIN));
        self.direction(sender).next = SeqNumber(seq.0.wrapping_add(counted));
        out.write(&addresses, &header, payload);
    }
}

/// Where traces are recorded.
pub(super) struct Output<'a> {
    capture: &'a mut Capture,
    now: Instant,
}

impl<'a> Output<'a> {
    pub(super) const fn new(capture: &'a mut Capture, now: Instant) -> Self {
        Self { capture, now }
    }

    /// Adds a segment.
    fn write(&mut self, addresses: &AddressPair, header: &TcpRepr, payload: &[u8]) {
        self.capture.record_tcp(addresses, header, payload, self.now);
    }
}

fn reversed(addresses: AddressPair) -> AddressPair {
    match addresses {
        AddressPair::V4 { src, dst } => AddressPair::V4 { src: dst, dst: src },
        AddressPair::V6 { src, dst } => AddressPair::V6 { src: dst, dst: src },
    }
}
