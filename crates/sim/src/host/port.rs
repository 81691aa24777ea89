//! Adapts smoltcp's IP packets to the world's Ethernet frames.

use std::collections::VecDeque;
use std::num::{NonZeroU16, NonZeroUsize};

use nichrome_tso::Segments;
use nichrome_wire::{
    ChecksumState, EtherType, EthernetHeader, Gso, GsoType, Ipv4Header, MacAddr, TcpGsoEcn, VirtioNetRepr,
};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, PacketMeta, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::TcpRepr;

use super::config::{HostConfig, Segmentation};
use super::segment;
use crate::HostId;

/// Maximum IP packet for segmentation by the card, in bytes.
const MAX_FOR_CARD: Option<NonZeroUsize> = NonZeroUsize::new(65_535);

/// A host's network device, for one call of smoltcp.
pub(super) struct Port<'a> {
    pub(super) host: HostId,
    pub(super) config: &'a HostConfig,
    /// The received IP packet, until smoltcp takes it.
    pub(super) received: Option<&'a [u8]>,
    /// Frames to send.
    pub(super) sent: &'a mut VecDeque<Vec<u8>>,
}

impl Port<'_> {
    fn sender(&mut self) -> Sender<'_> {
        let segmentation = self.config.segmentation;
        Sender { host: self.host, segmentation, segment_size: NonZeroU16::MAX, sent: self.sent }
    }

    /// Sends a segment without payload to a host, with checksums.
    pub(super) fn send(&mut self, segment: &TcpRepr<'_>, to: HostId) {
        let host = self.host;
        let sender = Sender { segmentation: Segmentation::Host, ..self.sender() };
        let len = segment::packet_len(segment);
        sender.consume(len, |packet| segment::write(segment, host, to, packet));
    }
}

impl Device for Port<'_> {
    type RxToken<'t>
        = Received<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Sender<'t>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sender<'_>)> {
        let packet = self.received.take()?;
        Some((Received(packet), self.sender()))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sender<'_>> {
        Some(self.sender())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.config.mtu;
        capabilities.checksum.tcp = Checksum::Rx;
        if self.config.segmentation == Segmentation::Card {
            capabilities.segmentation.tcpv4 = MAX_FOR_CARD;
        }
        capabilities
    }
}

pub(super) struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

pub(super) struct Sender<'a> {
    host: HostId,
    segmentation: Segmentation,
    /// Payload of each segment that the card makes, in bytes.
    segment_size: NonZeroU16,
    sent: &'a mut VecDeque<Vec<u8>>,
}

impl TxToken for Sender<'_> {
    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment_size = meta.segmentation_offload_size.unwrap_or(NonZeroU16::MAX);
    }

    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; EthernetHeader::LEN + len];
        let (header, packet) = frame.split_at_mut(EthernetHeader::LEN);
        let result = f(packet);
        let receiver = Ipv4Header::new(packet).and_then(|ip| HostId::of_ip(ip.dst()));
        header[..6].copy_from_slice(&receiver.map_or(MacAddr([0xFF; 6]), HostId::mac).0);
        header[6..12].copy_from_slice(&self.host.mac().0);
        header[12..].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        match self.segmentation {
            Segmentation::Host => self.sent.push_back(frame),
            Segmentation::Card => self.cut(&frame),
        }
        result
    }
}

impl Sender<'_> {
    /// Segments a packet as the card does, with checksums.
    fn cut(self, frame: &[u8]) {
        let transport = (EthernetHeader::LEN + Ipv4Header::LEN) as u16;
        let checksum = ChecksumState::Partial { start: transport, offset: 16 };
        let gso_type = GsoType::TcpV4(TcpGsoEcn::default());
        let gso = Some(Gso { gso_type, size: self.segment_size, hdr_len: transport });
        // Cannot fail: smoltcp sends TCP in IPv4 without options.
        let Ok(mut segments) = Segments::new(frame, &VirtioNetRepr { checksum, gso }) else { return };
        loop {
            let mut segment = Vec::with_capacity(1514);
            if !segments.append_next(&mut segment) {
                return;
            }
            self.sent.push_back(segment);
        }
    }
}
