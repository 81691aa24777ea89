//! What a host is configured with.

use thiserror::Error;

/// What the connections of a host have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Bytes of the longest IP packet that it sends, 576 to 9000; it takes packets of up to 65,535.
    pub mtu: usize,
    /// Bytes that a connection may have received and not read, and so its largest window: 1 to 2³⁰.
    pub receive_buffer: usize,
    /// Bytes that a connection may have sent without an acknowledgement: 1 to 2³⁰.
    pub send_buffer: usize,
    /// How fast senders send.
    pub congestion_control: CongestionControl,
    /// Whether a short segment waits for the acknowledgement of what was sent before it.
    pub nagle: Nagle,
    /// How long an acknowledgement may wait for a second segment, in nanoseconds; `None`: each is acknowledged at once.
    pub ack_delay: Option<u64>,
    /// Who cuts what is sent into segments.
    pub segmentation: Segmentation,
    /// Connections over the whole run, those that have ended included, 1 to 1,000,000.
    pub max_connections: usize,
    /// What the initial sequence numbers and the ports follow from.
    pub seed: u64,
}

/// What limits a sender beside its peer's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// Nothing.
    None,
    /// RFC 5681.
    Reno,
    /// RFC 9438, as Linux does. Computes with floating-point numbers, but calls nothing of the platform's.
    #[default]
    Cubic,
}

/// Whether a short segment waits for the acknowledgement of what was sent before it (RFC 1122 section 4.2.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nagle {
    /// It waits.
    #[default]
    On,
    /// It is sent at once: the option TCP_NODELAY.
    Off,
}

/// Who cuts what is sent into segments, and computes their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// TCP itself.
    #[default]
    Host,
    /// The card, with the engine of `nichrome_tso`: TCP hands it packets of up to 64 KB.
    Card,
}

impl Default for HostConfig {
    /// Ethernet; buffers of 256 KiB; an acknowledgement waits for 10 ms at most.
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

/// A value that is out of its range.
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
