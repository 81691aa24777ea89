//! The traffic to measure engines with: a file's frames in order, or segments of many flows.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, bail};
use nichrome_lro::{FlowKey, Medium};
use nichrome_port::capture::{self, ReadError};
use nichrome_wire::checksum::Sum;
use nichrome_wire::{
    AddressPair, IpProtocol, Ipv4Header, Ipv4HeaderMut, Ipv6Header, SeqNumber, TcpFlags, TcpHeader,
    TcpHeaderMut,
};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use crate::capture_files::{Interface, warn_skipped};
use crate::failure;
use crate::headers::{self, Headers};

/// Maximum frames taken from a file.
const MAX_FRAMES: usize = 1 << 20;
/// Maximum length of the segment that flows are generated from, in bytes: a jumbo frame.
const LONGEST: usize = 9216;
/// Minimum packets of a pass over generated flows.
const PASS: usize = 8192;

/// The IP frames of a file, all of one link type.
pub(super) struct File {
    pub(super) medium: Medium,
    pub(super) frames: Vec<Vec<u8>>,
}

impl File {
    /// Reads the file's IP frames, at most a million.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let mut reader = capture::open(path).with_context(name)?;
        let mut file = Self { medium: Medium::Ethernet, frames: Vec::new() };
        while file.frames.len() < MAX_FRAMES {
            let mut frame = Vec::new();
            let record = match reader.next(&mut frame) {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error @ ReadError::Truncated { .. }) if !file.frames.is_empty() => {
                    failure::warn(format_args!("{}: {error}; the packets before that are measured", name()));
                    break;
                }
                Err(error) => return Err(error).with_context(name),
            };
            let medium = Interface::of(&record, &frame).medium();
            match record.link_type.cooked(&frame) {
                Some(cooked) => drop(frame.splice(..cooked.header_len(), cooked.to_ethernet())),
                None => drop(frame.drain(..record.link_type.header_len(&frame))),
            }
            if !headers::is_ip(&frame, medium) {
                continue;
            }
            if file.frames.is_empty() {
                file.medium = medium;
            } else if medium != file.medium {
                bail!("{}: Ethernet and raw IP are mixed: measure one of them", name());
            }
            file.frames.push(frame);
        }
        warn_skipped(reader.skipped(), path);
        if file.frames.is_empty() {
            bail!("{}: there are no IP packets in it", name());
        }
        Ok(file)
    }

    /// Returns two frames for each TCP flow: a SYN, which restarts the flow whatever state an engine has of
    /// it, and a FIN in sequence behind it, with which the engine forgets it. Both are copies of the flow's
    /// first frame with other flags and sequence numbers, and a wrong checksum.
    pub(super) fn endings(&self) -> Vec<[Vec<u8>; 2]> {
        let mut seen: HashSet<FlowKey> = HashSet::new();
        let mut ending = |frame: &Vec<u8>| {
            let headers = Headers::read(frame, frame.len(), self.medium)?;
            if !seen.insert(headers.flow) {
                return None;
            }
            let first = TcpHeader::new(frame.get(headers.transport..)?)?.seq();
            let before_first = first - headers.payload_len() as u32;
            let with = |flags, seq| {
                let mut frame = frame.clone();
                let mut header = TcpHeaderMut::new(frame.get_mut(headers.transport..)?)?;
                header.set_flags(flags);
                header.set_seq(seq);
                Some(frame)
            };
            // A SYN takes a sequence number, too.
            Some([with(TcpFlags::SYN, before_first - 1)?, with(TcpFlags::FIN | TcpFlags::ACK, before_first)?])
        };
        self.frames.iter().filter_map(&mut ending).collect()
    }

    /// Returns the first of the longest data segments: typical of a bulk transfer.
    fn full_sized(&self) -> Option<(&[u8], Headers)> {
        let segments = self.frames.iter().filter(|frame| frame.len() <= LONGEST).filter_map(|frame| {
            let headers = Headers::read(frame, frame.len(), self.medium)?;
            Some((&frame[..headers.end], headers))
        });
        let longest = segments.rev().max_by_key(|(_, headers)| headers.payload_len())?;
        Some(longest).filter(|(_, headers)| headers.payload_len() > 0)
    }
}

/// The order of the flows' segments, and whether they can be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Interleaving {
    pub(super) flows: u32,
    /// Consecutive segments of one flow.
    pub(super) in_a_row: u32,
    /// True if each segment extends its flow's previous one; otherwise their ACK numbers differ.
    pub(super) merges: bool,
}

/// Segments of many flows, each flow in sequence from pass to pass: in pseudo-random order, or round robin.
pub(super) struct Flows {
    template: Vec<u8>,
    headers: Headers,
    /// The next segment of each flow.
    next: Vec<Next>,
    /// The order of the flows in a pass.
    order: Vec<u32>,
    /// Shuffles the order before each pass.
    random: Option<Pcg64Mcg>,
    /// Increment of the ACK number per segment.
    ack_step: u32,
}

#[derive(Clone, Copy)]
struct Next {
    seq: u32,
    ack: u32,
    ident: u16,
}

impl Next {
    /// Returns the first segment of a flow. Initial sequence numbers are likely distinct.
    fn first(flow: u32) -> Self {
        Self { seq: flow.wrapping_mul(0x9E37_79B9), ack: 1, ident: flow as u16 }
    }
}

impl Flows {
    /// Creates `count` flows in random order, made from the file's first full-sized data segment.
    pub(super) fn new(file: &File, count: u32) -> anyhow::Result<Self> {
        let packets = (count as usize).max(PASS).next_multiple_of(count as usize);
        let order = (0..count).cycle().take(packets).collect();
        Ok(Self { random: Some(Pcg64Mcg::seed_from_u64(7)), ..Self::in_order(file, count, order)? })
    }

    /// Creates interleaved flows.
    pub(super) fn interleaved(file: &File, interleaving: Interleaving) -> anyhow::Result<Self> {
        let Interleaving { flows, in_a_row, merges } = interleaving;
        let round = flows as usize * in_a_row as usize;
        let packets = PASS.next_multiple_of(round);
        let order = (0..flows).flat_map(|flow| (0..in_a_row).map(move |_| flow)).cycle().take(packets);
        Ok(Self { ack_step: u32::from(!merges), ..Self::in_order(file, flows, order.collect())? })
    }

    fn in_order(file: &File, count: u32, order: Vec<u32>) -> anyhow::Result<Self> {
        let (segment, headers) =
            file.full_sized().context("there is no TCP segment with payload in the file")?;
        let mut template = segment.to_vec();
        if let Some(mut tcp) = TcpHeaderMut::new(&mut template[headers.transport..]) {
            tcp.set_flags(TcpFlags::ACK);
        }
        let next = (0..count).map(Next::first).collect();
        Ok(Self { template, headers, next, order, random: None, ack_step: 0 })
    }

    /// Returns the packets of a pass.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Shuffles the flows for the next pass, if their order is random.
    pub(super) fn shuffle(&mut self) {
        if let Some(random) = &mut self.random {
            self.order.shuffle(random);
        }
    }

    /// Writes a packet of the pass to `frame`.
    pub(super) fn write(&mut self, packet: usize, frame: &mut Vec<u8>) {
        let flow = self.order[packet];
        let next = &mut self.next[flow as usize];
        frame.clear();
        frame.extend_from_slice(&self.template);
        self.headers.identify(frame, flow, *next);
        next.seq = next.seq.wrapping_add(self.headers.payload_len() as u32);
        next.ack = next.ack.wrapping_add(self.ack_step);
        next.ident = next.ident.wrapping_add(1);
    }
}

impl Headers {
    /// Sets source, sequence number and checksums of a frame for a flow.
    fn identify(&self, frame: &mut [u8], flow: u32, next: Next) {
        let (_, packet) = frame.split_at_mut(self.network);
        let transport = self.transport - self.network;
        let (ip, tcp) = packet.split_at_mut(transport);
        let len = tcp.len() as u32;
        let flow_bytes = flow.to_be_bytes();
        let addresses = if let Some(source) = ip.get_mut(12..16).filter(|_| self.flow.is_ipv4()) {
            source.copy_from_slice(&[10, flow_bytes[1], flow_bytes[2], flow_bytes[3]]);
            if let Some(mut ip) = Ipv4HeaderMut::new(ip) {
                ip.set_ident(next.ident);
                ip.fill_checksum();
            }
            Ipv4Header::new(ip).map(|ip| AddressPair::V4 { src: ip.src(), dst: ip.dst() })
        } else {
            if let Some(source) = ip.get_mut(20..24) {
                source.copy_from_slice(&flow_bytes);
            }
            Ipv6Header::new(ip).map(|ip| AddressPair::V6 { src: ip.src(), dst: ip.dst() })
        };
        let port = 1024 + (flow % 60_000) as u16;
        if let Some(source_port) = tcp.get_mut(..2) {
            source_port.copy_from_slice(&port.to_be_bytes());
        }
        if let Some(mut tcp) = TcpHeaderMut::new(tcp) {
            tcp.set_seq(SeqNumber(next.seq));
            tcp.set_ack(SeqNumber(next.ack));
            tcp.set_checksum(0);
        }
        let pseudo = addresses.map_or(Sum::new(), |pair| pair.pseudo_header(IpProtocol::TCP, len));
        let sum = pseudo.add_bytes(tcp).finish();
        if let Some(mut tcp) = TcpHeaderMut::new(tcp) {
            tcp.set_checksum(sum);
        }
    }
}
