//! Configuration that the three engines share.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::run::Limits;
use crate::segment::Medium;

/// The profiles: the crate's documentation compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Lossless: the received packets can be re-created.
    #[default]
    Gro,
    /// The stateless hardware module of lro-netfpga: one flow at a time, or up to 16.
    Netfpga,
    /// The multi-core design of lro-npu: reorders by sequence number.
    Npu,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 3] = [Self::Gro, Self::Netfpga, Self::Npu];

    /// Returns the name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gro => "gro",
            Self::Netfpga => "netfpga",
            Self::Npu => "npu",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of parsing a [`Profile`]: no profile has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown profile '{0}': use gro, netfpga or npu")]
pub struct UnknownProfile(String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| UnknownProfile(name.into()))
    }
}

/// Treatment of segments with a wrong checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadChecksum {
    /// Dropped, as in both papers.
    Drop,
    /// Passed on; the host drops and counts them.
    Pass,
}

/// How long `gro` holds segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Until the receive batch ends: [`nichrome_wire::Engine::end_of_batch`].
    Batch,
    /// At most this long after the aggregate's first segment.
    For(Duration),
}

/// Configuration that all engines share.
///
/// An engine reserves at most 500 KB, 250 bytes per connection (500 with UDP), and per aggregate 760 bytes
/// and `max_segments` frames (a buffer and 8 bytes each). For every eight aggregates, `npu` also reserves
/// `reorder_segments` frames and 96 bytes each. No engine allocates more later, except in the first batches:
/// room for as many outputs as one batch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The outermost header of the frames.
    pub medium: Medium,
    /// Treatment of wrong checksums. Default `None`: `gro` passes them, `netfpga` and `npu` drop them.
    pub bad_checksum: Option<BadChecksum>,
    /// Coalesces UDP datagrams (`gro` only). The kernel behind the engine must accept UDP GSO packets: Linux
    /// 6.2 or later.
    pub udp: bool,
    /// Coalesces TCP within IP (IPIP, 6in4, IP in IPv6) and within PPP over Ethernet (`gro` only). The virtio
    /// header cannot name the tunnel, so the host must terminate it: a router could not segment the packets
    /// again.
    pub tunnels: bool,
    /// Coalesces segments whose CWR and AE flags are equal, as Linux 7 does for accurate ECN (RFC 9768; `gro`
    /// only). A host that segments the packets again keeps CWR on the first segment only, so the host must
    /// terminate the connections.
    pub accurate_ecn: bool,
    /// Maximum size of an aggregate's IP packet in bytes, 576 to 65,535.
    pub max_bytes: u32,
    /// Maximum number of segments in an aggregate, 2 to 1,023 (a gathering write takes 1,024 slices: all
    /// headers in one, and each payload).
    pub max_segments: usize,
    /// Maximum number of connections in the table, 1 to 16,777,216; `netfpga` has [its own
    /// limit](crate::NetfpgaConfig::flows). Only `npu` keeps connections that hold nothing.
    pub max_connections: usize,
    /// Maximum number of aggregates, those held by the driver included, 1 to 16,777,216.
    pub max_aggregates: usize,
    /// Seed of the hash of connections; a live card draws it at random.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            medium: Medium::Ethernet,
            bad_checksum: None,
            udp: false,
            tunnels: false,
            accurate_ecn: false,
            max_bytes: 65_535,
            max_segments: 128,
            max_connections: 16_384,
            max_aggregates: 4096,
            seed: 0,
        }
    }
}

/// A value out of its range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} is {value}: it must be from {min} to {max}")]
pub struct ConfigError {
    name: &'static str,
    value: u64,
    min: u64,
    max: u64,
}

impl Config {
    /// Returns the maximum number of connections that hold segments at a time: each needs a place in the
    /// table and an aggregate.
    pub(crate) fn holding_connections(&self) -> usize {
        self.max_connections.min(self.max_aggregates)
    }

    /// Returns the maximum size of an aggregate.
    pub(crate) fn limits(&self) -> Limits {
        Limits { bytes: self.max_bytes, segments: self.max_segments as u32 }
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        const MOST: u64 = 1 << 24;
        let ranges = [
            ("max_bytes", u64::from(self.max_bytes), 576, 65_535),
            ("max_segments", self.max_segments as u64, 2, 1023),
            ("max_connections", self.max_connections as u64, 1, MOST),
            ("max_aggregates", self.max_aggregates as u64, 1, MOST),
        ];
        check(&ranges)
    }
}

/// Checks that each named value is within its bounds.
pub(crate) fn check(ranges: &[(&'static str, u64, u64, u64)]) -> Result<(), ConfigError> {
    match ranges.iter().find(|(_, value, min, max)| !(min..=max).contains(&value)) {
        Some(&(name, value, min, max)) => Err(ConfigError { name, value, min, max }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_unknown_profile_lists_all_profiles() {
        assert_eq!("npu".parse(), Ok(Profile::Npu));
        let error = "lro".parse::<Profile>().unwrap_err().to_string();
        assert!(Profile::ALL.iter().all(|profile| error.contains(profile.name())), "{error}");
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_range() {
        let config = Config { max_bytes: 70_000, ..Config::default() };
        let error = config.validate().unwrap_err().to_string();
        assert_eq!(error, "max_bytes is 70000: it must be from 576 to 65535");
        assert_eq!(Config::default().validate(), Ok(()));
    }
}
