//! A capture of the datagrams of an adapter.

use std::io::Write;
use std::mem;
use std::path::Path;
use std::sync::Arc;

use nichrome_port::capture::{LinkType, MAX_SNAP_LEN, PacketOptions, WriteError, Writer, create_or_continue};
use nichrome_port::clock;
use nichrome_rdma::Datagram;
use nichrome_wire::rdma::{IcrcCheck, IcrcChecker, ROCE_PORT, UdpFlow};
use nichrome_wire::{
    AddressPair, FlowLabel, Fragment, HeaderOptions, Instant, IpProtocol, Ipv4Repr, Ipv6Repr, TcpRepr,
    TrafficClass, UdpChecksum, UdpRepr,
};

/// The capture of an adapter, if there is one. A write error ends the capture, and is kept; the adapter goes
/// on.
#[derive(Default)]
pub(crate) struct Capture {
    recorder: Option<Recorder>,
    error: Option<Arc<WriteError>>,
}

impl Capture {
    /// Creates the file, with one interface named `interface`, or adds a section to the capture of an earlier
    /// adapter of this process.
    pub(crate) fn create(path: &Path, interface: &str) -> Result<Self, WriteError> {
        Ok(Self { recorder: Some(Recorder::create(path, interface)?), error: None })
    }

    /// Returns true while datagrams are recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.recorder.is_some()
    }

    /// Returns the error that has ended the capture.
    pub(crate) fn error(&self) -> Option<Arc<WriteError>> {
        self.error.clone()
    }

    /// Adds a datagram.
    #[inline]
    pub(crate) fn record(&mut self, datagram: &Datagram<'_>, now: Instant) {
        self.write(|recorder| recorder.record(&datagram.flow, datagram.traffic_class, datagram.bytes, now));
    }

    /// Adds a TCP segment.
    #[inline]
    pub(crate) fn record_tcp(
        &mut self,
        addresses: &AddressPair,
        header: &TcpRepr,
        payload: &[u8],
        now: Instant,
    ) {
        self.write(|recorder| recorder.record_tcp(addresses, header, payload, now));
    }

    /// Writes out the datagrams, which then stay in the file even if the process is killed.
    #[inline]
    pub(crate) fn flush(&mut self) {
        self.write(Recorder::flush);
    }

    #[inline]
    fn write(&mut self, write: impl FnOnce(&mut Recorder) -> Result<(), WriteError>) {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = write(recorder)
        {
            self.recorder = None;
            self.error = Some(Arc::new(error));
        }
    }

    /// Closes the file.
    pub(crate) fn close(&mut self) {
        self.recorder = None;
    }

    /// Gives up the file in a forked child, without a flush; its parent continues to write to it.
    pub(crate) fn close_in_child(&mut self) {
        if let Some(recorder) = self.recorder.take() {
            mem::forget(recorder);
        }
    }
}

/// Writes datagrams to a capture file with reconstructed IP and UDP headers, which a socket does not report.
/// The IPv4 identification is the one that the ICRC is right for, else 0.
struct Recorder {
    writer: Writer<Box<dyn Write + Send>>,
    interface: u32,
    /// Wall clock minus monotonic clock, in nanoseconds.
    offset: u64,
    icrc: IcrcChecker,
    packet: Vec<u8>,
}

impl Recorder {
    /// As [`Capture::create`].
    fn create(path: &Path, interface: &str) -> Result<Self, WriteError> {
        let mut writer = create_or_continue(path, concat!("nichrome ", env!("CARGO_PKG_VERSION")))?;
        let interface = writer.add_interface(LinkType::RawIp, interface, MAX_SNAP_LEN)?;
        writer.flush()?;
        let offset = clock::wall_clock().nanos_since(clock::now());
        Ok(Self { writer, interface, offset, icrc: IcrcChecker::default(), packet: Vec::new() })
    }

    /// Adds a datagram. A datagram too long for an IP packet is left out.
    fn record(
        &mut self,
        flow: &UdpFlow,
        traffic_class: TrafficClass,
        datagram: &[u8],
        now: Instant,
    ) -> Result<(), WriteError> {
        let ident = match self.icrc.check(flow, datagram) {
            IcrcCheck::ValidForIdent(ident) if flow.dst_port == ROCE_PORT => ident,
            IcrcCheck::ValidForIdent(_) | IcrcCheck::Valid | IcrcCheck::Wrong => 0,
        };
        self.packet.clear();
        if ip_packet(flow, traffic_class, ident, datagram, &mut self.packet).is_none() {
            return Ok(());
        }
        self.write_packet(now)
    }

    /// Adds a TCP segment. A segment too long for an IP packet is left out.
    fn record_tcp(
        &mut self,
        addresses: &AddressPair,
        header: &TcpRepr,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), WriteError> {
        self.packet.clear();
        let (len, traffic_class) = (header.header_len() + payload.len(), TrafficClass::default());
        let is_written = ip_header(addresses, (IpProtocol::TCP, traffic_class, 0), len, &mut self.packet)
            .and_then(|()| header.emit(addresses, payload, &mut self.packet).ok());
        if is_written.is_none() {
            return Ok(());
        }
        self.write_packet(now)
    }

    fn write_packet(&mut self, now: Instant) -> Result<(), WriteError> {
        let time = now.plus_nanos(self.offset);
        self.writer.write(self.interface, time, None, [&self.packet], PacketOptions::default())
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.writer.flush()
    }
}

/// Appends the IP packet of a datagram; `None` if it is too long.
fn ip_packet(
    flow: &UdpFlow,
    traffic_class: TrafficClass,
    ident: u16,
    datagram: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    let udp_len = nichrome_wire::UdpHeader::LEN + datagram.len();
    ip_header(&flow.addresses, (IpProtocol::UDP, traffic_class, ident), udp_len, out)?;
    let udp = UdpRepr { src_port: flow.src_port, dst_port: flow.dst_port, checksum: UdpChecksum::Present };
    udp.emit(&flow.addresses, datagram, out).ok()
}

/// Appends the IP header of a payload of `len` bytes; `None` if that is too long.
fn ip_header(
    addresses: &AddressPair,
    (protocol, traffic_class, ident): (IpProtocol, TrafficClass, u16),
    len: usize,
    out: &mut Vec<u8>,
) -> Option<()> {
    match *addresses {
        AddressPair::V4 { src, dst } => Ipv4Repr {
            src,
            dst,
            protocol,
            ttl: 64,
            tos: traffic_class,
            ident,
            dont_fragment: true,
            fragment: Fragment::default(),
            options: HeaderOptions::default(),
        }
        .emit(len, out)
        .ok(),
        AddressPair::V6 { src, dst } => Ipv6Repr {
            src,
            dst,
            next_header: protocol,
            hop_limit: 64,
            traffic_class,
            flow_label: FlowLabel::default(),
        }
        .emit(len, out)
        .ok(),
    }
}
