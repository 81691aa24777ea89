//! A paced traffic generator: TCP or UDP frames back to back at line rate, without a receiver's feedback.

use std::num::NonZeroU32;

use nichrome_wire::checksum::Sum;
use nichrome_wire::{
    AddressPair, EthernetHeader, Instant, IpProtocol, MacAddr, Network, SeqNumber, TcpFrame, UdpChecksum,
    UdpHeader, UdpRepr,
};
use thiserror::Error;

use crate::{HostId, Outline, Pacer, Packet, Rate};

/// The configuration of a generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratorConfig {
    /// The line rate.
    pub rate: Rate,
    /// Overhead of each frame on the line in bytes, such as [`crate::ETHERNET_OVERHEAD`].
    pub overhead: u32,
    /// Frame length without frame check sequence in bytes, 60 to 9014.
    pub frame_len: usize,
    /// Whether packets have bytes.
    pub content: Content,
    /// The flows, at least one.
    pub flows: Vec<FlowConfig>,
}

/// The content of generated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Whole frames with correct checksums and consecutive sequence numbers.
    Frames,
    /// Outlines with the flow's number.
    Outlines,
}

/// A flow of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// The source.
    pub from: HostId,
    /// The destination.
    pub to: HostId,
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// The flow's share of the frames, relative to the other weights.
    pub weight: NonZeroU32,
    /// The transport protocol.
    pub protocol: FlowProtocol,
    /// Frames per 10⁹ whose TTL is one lower than the others'.
    pub other_ttl: u32,
    /// Frames per 10⁹ with a wrong TCP or UDP checksum.
    pub wrong_checksum: u32,
}

/// The transport protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowProtocol {
    /// TCP, with consecutive sequence numbers.
    Tcp,
    /// UDP.
    Udp,
}

/// An invalid generator configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GeneratorError {
    /// The frame length is out of range.
    #[error("frame_len is {0}: it must be from 60 to 9014")]
    FrameLen(usize),
    /// There are no flows.
    #[error("there are no flows: at least one is needed")]
    NoFlows,
}

/// A generated frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Time at which its last bit leaves.
    pub at: Instant,
    /// Index of its flow.
    pub flow: usize,
    /// The frame.
    pub packet: Packet,
}

/// An endless iterator of frames in time order. Interleaves flows as evenly as their weights allow, in a
/// deterministic order.
#[derive(Clone, Debug)]
pub struct Generator {
    config: GeneratorConfig,
    pacer: Pacer,
    flows: Vec<Flow>,
    total_weight: i64,
    start: Instant,
}

#[derive(Clone, Debug)]
struct Flow {
    weight: i64,
    /// Deficit of the flow; the largest one is next (smooth weighted round robin).
    behind: i64,
    sent: u64,
    protocol: FlowProtocol,
    other_ttl: u32,
    wrong_checksum: u32,
    /// The flow's frame with identification and sequence number 0.
    template: Vec<u8>,
}

/// Offsets of the headers, all without options.
const IP: usize = EthernetHeader::LEN;
const TCP: usize = IP + 20;
const PAYLOAD: usize = TCP + 20;
const TTL: usize = IP + 8;
const PROTOCOL: usize = IP + 9;
/// -0x0100 in ones' complement: the change of a header with its TTL one lower.
const MINUS_ONE_HOP: u32 = 0xFEFF;

impl Generator {
    /// Creates a generator whose first frame begins at `start`.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(config: GeneratorConfig, start: Instant) -> Result<Self, GeneratorError> {
        if !(60..=9014).contains(&config.frame_len) {
            return Err(GeneratorError::FrameLen(config.frame_len));
        }
        if config.flows.is_empty() {
            return Err(GeneratorError::NoFlows);
        }
        let flows: Vec<_> = config.flows.iter().map(|flow| Flow::new(flow, config.frame_len)).collect();
        let total_weight = flows.iter().map(|flow| flow.weight).sum();
        Ok(Self { pacer: Pacer::new(config.rate), flows, total_weight, start, config })
    }

    /// Returns the number of frames sent by a flow.
    pub fn sent(&self, flow: usize) -> u64 {
        self.flows.get(flow).map_or(0, |flow| flow.sent)
    }

    /// Returns the flow with the largest deficit; the first one on a tie.
    fn next_flow(&mut self) -> usize {
        for flow in &mut self.flows {
            flow.behind += flow.weight;
        }
        let first = (0..self.flows.len()).rev().max_by_key(|flow| self.flows[*flow].behind).unwrap_or(0);
        self.flows[first].behind -= self.total_weight;
        first
    }
}

impl Iterator for Generator {
    type Item = Generated;

    fn next(&mut self) -> Option<Generated> {
        let at = self.pacer.send(self.config.frame_len as u64 + u64::from(self.config.overhead), self.start);
        let flow = self.next_flow();
        let number = self.flows[flow].sent;
        self.flows[flow].sent += 1;
        let packet = match self.config.content {
            Content::Frames => Packet::Frame(self.flows[flow].frame(number)),
            Content::Outlines => Packet::Outline(Outline {
                len: self.config.frame_len as u32,
                to: self.config.flows[flow].to,
                flow: flow as u32,
                number,
                ..Outline::default()
            }),
        };
        Some(Generated { at, flow, packet })
    }
}

impl Flow {
    fn new(config: &FlowConfig, frame_len: usize) -> Self {
        let FlowConfig { from, to, src_port, dst_port, weight, protocol, other_ttl, wrong_checksum } =
            *config;
        let [src_mac, dst_mac]: [MacAddr; 2] = [from.mac(), to.mac()];
        let network = Network::ipv4(from.ip(), to.ip());
        let payload = vec![0; frame_len - PAYLOAD];
        let (seq, defaults) = (SeqNumber(0), TcpFrame::default());
        let frame = TcpFrame { src_mac, dst_mac, network, src_port, dst_port, seq, payload, ..defaults };
        let mut template = frame.build();
        if protocol == FlowProtocol::Udp {
            into_udp(&mut template, config);
        }
        let weight = i64::from(weight.get());
        Self { weight, behind: 0, sent: 0, protocol, other_ttl, wrong_checksum, template }
    }

    /// Builds frame `number` of the flow.
    fn frame(&self, number: u64) -> Vec<u8> {
        let mut frame = self.template.clone();
        // Identification and sequence number wrap.
        let ident = number as u16;
        put(&mut frame, IP + 4, ident.to_be_bytes());
        add_to_checksum(&mut frame, IP + 10, u32::from(ident));
        if self.protocol == FlowProtocol::Tcp {
            let payload = (frame.len() - PAYLOAD) as u64;
            let seq = (number * payload) as u32;
            put(&mut frame, TCP + 4, seq.to_be_bytes());
            add_to_checksum(&mut frame, TCP + 16, seq);
        }
        if is_one_of(self.other_ttl, number) {
            frame[TTL] -= 1;
            add_to_checksum(&mut frame, IP + 10, MINUS_ONE_HOP);
        }
        if let Some(last) = frame.last_mut().filter(|_| is_one_of(self.wrong_checksum, number)) {
            *last ^= 1;
        }
        frame
    }
}

/// Returns true if frame `number` is one of `part` frames per 10⁹, spread evenly.
fn is_one_of(part: u32, number: u64) -> bool {
    let until = |number: u64| u128::from(number) * u128::from(part) / 1_000_000_000;
    until(number + 1) > until(number)
}

/// Turns a TCP frame without options into a UDP frame of the same length.
fn into_udp(frame: &mut Vec<u8>, config: &FlowConfig) {
    let addresses = AddressPair::V4 { src: config.from.ip(), dst: config.to.ip() };
    let udp =
        UdpRepr { src_port: config.src_port, dst_port: config.dst_port, checksum: UdpChecksum::Present };
    let payload = vec![0; frame.len() - TCP - UdpHeader::LEN];
    frame.truncate(TCP);
    // Fails only beyond 65,535 bytes.
    let _ = udp.emit(&addresses, &payload, frame);
    frame[PROTOCOL] = IpProtocol::UDP.0;
    add_to_checksum(frame, IP + 10, u32::from(IpProtocol::UDP.0) + u32::from(!u16::from(IpProtocol::TCP.0)));
}

fn put<const N: usize>(frame: &mut [u8], at: usize, bytes: [u8; N]) {
    frame[at..at + N].copy_from_slice(&bytes);
}

/// Updates the checksum after a zero field changed to `number` (RFC 1624, equation 3).
fn add_to_checksum(frame: &mut [u8], at: usize, number: u32) {
    let before = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let sum = Sum::new().add_u32(u32::from(!before)).add_u32(number);
    put(frame, at, sum.finish().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use nichrome_wire::{AddressPair, EthernetRepr, Ipv4Repr, TcpRepr};

    use super::*;

    fn config(frame_len: usize, weights: &[u32]) -> GeneratorConfig {
        let flow = |(nth, weight): (usize, &u32)| FlowConfig {
            from: HostId(1),
            to: HostId(2),
            src_port: 40_000 + nth as u16,
            dst_port: 80,
            weight: NonZeroU32::new(*weight).unwrap(),
            protocol: FlowProtocol::Tcp,
            other_ttl: 0,
            wrong_checksum: 0,
        };
        let flows = weights.iter().enumerate().map(flow).collect();
        GeneratorConfig { rate: Rate::GIGABIT, overhead: 24, frame_len, content: Content::Frames, flows }
    }

    fn generator(frame_len: usize, weights: &[u32]) -> Generator {
        Generator::new(config(frame_len, weights), Instant::ZERO).unwrap()
    }

    #[test]
    fn the_line_is_full() {
        // 1,488,095 frames of 64 bytes with their check sequence a second: RFC 2544, appendix A.
        let last = generator(60, &[1]).take(1_488_095).last().unwrap();
        assert_eq!(last.at.as_nanos(), 999_999_840);
        let times: Vec<_> = generator(1514, &[1]).take(3).map(|frame| frame.at.as_nanos()).collect();
        assert_eq!(times, [12_304, 24_608, 36_912]);
    }

    #[test]
    fn frames_parse_and_carry_on() {
        for frame_len in [60, 61, 1514] {
            let mut next_seq = 0;
            for (number, generated) in (0..70_000u64).zip(generator(frame_len, &[1])) {
                let Packet::Frame(frame) = generated.packet else { panic!("no bytes") };
                let (ethernet, packet) = EthernetRepr::parse(&frame).unwrap();
                let (ip, segment) = Ipv4Repr::parse(packet).unwrap();
                let addresses = AddressPair::V4 { src: ip.src, dst: ip.dst };
                let (tcp, payload) = TcpRepr::parse(segment, &addresses).unwrap();
                assert_eq!((frame.len(), ethernet.dst), (frame_len, HostId(2).mac()));
                assert_eq!((ip.ident, tcp.seq), (number as u16, SeqNumber(next_seq)));
                next_seq = next_seq.wrapping_add(payload.len() as u32);
            }
        }
    }

    #[test]
    fn odd_frames_are_spread_and_right_but_for_the_wrong_checksums() {
        let mut config = config(1514, &[1]);
        let flow = &mut config.flows[0];
        (flow.protocol, flow.other_ttl, flow.wrong_checksum) = (FlowProtocol::Udp, 250_000_000, 100_000_000);
        let (mut ttls, mut wrong) = ([0; 2], 0);
        for generated in Generator::new(config, Instant::ZERO).unwrap().take(1000) {
            let Packet::Frame(frame) = generated.packet else { panic!("no bytes") };
            let (_, packet) = EthernetRepr::parse(&frame).unwrap();
            let (ip, datagram) = Ipv4Repr::parse(packet).unwrap();
            ttls[usize::from(64 - ip.ttl)] += 1;
            let addresses = AddressPair::V4 { src: ip.src, dst: ip.dst };
            wrong += usize::from(UdpRepr::parse(datagram, &addresses).is_err());
        }
        assert_eq!((ttls, wrong), ([750, 250], 100));
    }

    #[test]
    fn flows_take_turns_by_their_weights() {
        let order: Vec<_> = generator(60, &[3, 1]).take(8).map(|frame| frame.flow).collect();
        assert_eq!(order, [0, 0, 1, 0, 0, 0, 1, 0]);
        let mut generator = generator(60, &[997, 101, 1]);
        let of_each = generator.by_ref().take(1099).fold([0; 3], |mut counts, frame| {
            counts[frame.flow] += 1;
            counts
        });
        assert_eq!((of_each, generator.sent(1)), ([997, 101, 1], 101));
    }

    #[test]
    fn outlines_come_at_the_same_times() {
        let outlines = GeneratorConfig { content: Content::Outlines, ..config(1514, &[2, 1]) };
        let outlines = Generator::new(outlines, Instant::ZERO).unwrap();
        for (frame, outline) in generator(1514, &[2, 1]).zip(outlines).take(100) {
            assert_eq!((frame.at, frame.flow), (outline.at, outline.flow));
            assert_eq!(frame.packet.wire_len(), outline.packet.wire_len());
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let error = |config| Generator::new(config, Instant::ZERO).err().unwrap().to_string();
        assert_eq!(error(config(59, &[1])), "frame_len is 59: it must be from 60 to 9014");
        assert_eq!(error(config(60, &[])), "there are no flows: at least one is needed");
    }
}
