//! Received datagrams.

use nichrome_wire::TrafficClass;
use nichrome_wire::rdma::UdpFlow;

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Addresses and ports, as sent.
    pub flow: UdpFlow,
    /// Traffic class with the ECN bits.
    pub traffic_class: TrafficClass,
    /// The UDP payload.
    pub bytes: &'a [u8],
}
