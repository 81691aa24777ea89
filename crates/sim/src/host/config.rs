//! The configuration of a host.

use thiserror::Error;

/// The common configuration of a host's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// MTU for sending in bytes, 576 to 9000; packets of up to 65,535 bytes are accepted.
    pub mtu: usize,
    /// Receive buffer of a connection in bytes, which limits its window: 1 to 2³⁰.
    pub receive_buffer: usize,
    /// Send buffer of a connection in bytes, which limits unacknowledged data: 1 to 2³⁰.
    pub send_buffer: usize,
    /// Congestion control.
    pub congestion_control: CongestionControl,
    /// Nagle's algorithm.
    pub nagle: Nagle,
    /// Delayed ACK timeout in nanoseconds; `None`: every segment is acknowledged at once.
    pub ack_delay: Option<u64>,
    /// Segmentation by TCP or by the card.
    pub segmentation: Segmentation,
    /// Maximum connections over the whole run, including closed ones: 1 to 1,000,000.
    pub max_connections: usize,
    /// Seed for initial sequence numbers and ports.
    pub seed: u64,
}

/// Congestion control algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// None: only the peer's window limits the sender.
    None,
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438), as in Linux. Uses floating-point arithmetic, but no platform functions.
    #[default]
    Cubic,
}

/// Nagle's algorithm (RFC 1122 section 4.2.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nagle {
    /// A short segment waits until all earlier data is acknowledged.
    #[default]
    On,
    /// Short segments are sent at once (TCP_NODELAY).
    Off,
}

/// Where segmentation and checksums are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// In TCP.
    #[default]
    Host,
    /// In the card, by the engine of `nichrome_tso`: TCP passes packets of up to 64 KB.
    Card,
}

impl Default for HostConfig {
    /// Ethernet MTU, buffers of 256 KiB, delayed ACK of at most 10 ms.
    fn default() -> Self {
        Self {
            mtu: 1500,
            receive_buffer: 1 << 18,
            send_buffer: 1 << 18,
            congestion_control: CongestionControl::default(),
            nagle: Nagle::default(),
            ack_delay: Some(10_000_000),
            segmentation: Segmentation::default(),
            max_connections: 1024,
            seed: 0,
        }
    }
}

/// A value out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{name} is {value}: it must be from {min} to {max}")]
pub struct HostConfigError {
    name: &'static str,
    value: usize,
    min: usize,
    max: usize,
}

impl HostConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn validate(&self) -> Result<(), HostConfigError> {
        let ranges = [
            ("mtu", self.mtu, 576, 9000),
            ("receive_buffer", self.receive_buffer, 1, 1 << 30),
            ("send_buffer", self.send_buffer, 1, 1 << 30),
            ("max_connections", self.max_connections, 1, 1_000_000),
        ];
        match ranges.into_iter().find(|(_, value, min, max)| !(min..=max).contains(&value)) {
            Some((name, value, min, max)) => Err(HostConfigError { name, value, min, max }),
            None => Ok(()),
        }
    }
}
