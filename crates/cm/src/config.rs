//! The configuration of a manager.

use nichrome_wire::cm::{Guid, TimeExponent};
use nichrome_wire::rdma::PathMtu;
use thiserror::Error;

/// How connections are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// RoCEv2 and StaR: InfiniBand's messages on queue pair 1.
    Roce,
    /// iWARP: MPA, whose start frames carry the private data. Set up by the driver.
    Iwarp,
}

/// The top bits of communication identifiers, by which messages reach one of several processes that share an
/// address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommIdPrefix {
    /// Number of bits, 0 to 16.
    pub bits: u8,
    /// Their value.
    pub value: u16,
}

impl CommIdPrefix {
    pub(crate) fn apply(self, random: u32) -> u32 {
        let below = 32 - u32::from(self.bits.min(16));
        let low = u32::MAX.checked_shr(32 - below).unwrap_or(u32::MAX);
        random & low | u32::from(self.value).checked_shl(below).unwrap_or(0)
    }
}

/// RNR NAK delays, as in the AETH (IBA table 45). The kernel's is 655 ms for all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrTimers {
    /// If the REQ requests unlimited RNR retries.
    pub unlimited: u8,
    /// If it limits them: a longer delay, so that a program that posts its receives late does not use them
    /// up.
    pub limited: u8,
}

impl Default for RnrTimers {
    /// 0.64 ms and 82 ms.
    fn default() -> Self {
        Self { unlimited: 12, limited: 26 }
    }
}

/// Limits for holding requests for a port without a listener, if a listener was closed there or a program has
/// bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Nanoseconds after which a request is refused.
    pub request_time: u64,
    /// Nanoseconds for which a closed listener's port is remembered.
    pub port_time: u64,
    /// Maximum number of requests. At the limit, a request of the peer that has most is refused if it has
    /// more than the new one's peer; otherwise the new one.
    pub max_requests: usize,
    /// Maximum number of ports: the oldest is forgotten.
    pub max_ports: usize,
}

impl Default for HoldLimits {
    fn default() -> Self {
        Self { request_time: 2_000_000_000, port_time: 10_000_000_000, max_requests: 64, max_ports: 16 }
    }
}

/// The configuration of a manager.
#[derive(Clone, Debug)]
pub struct Config {
    /// How connections are set up.
    pub bearer: Bearer,
    /// The adapter's GUID.
    pub guid: Guid,
    /// Seed of random ports and PSNs.
    pub seed: u128,
    /// Seed of communication identifiers and of the GUID in messages. If an earlier run at the address had
    /// the same seed, peers may take requests of this run for retransmissions of that run.
    pub identity_seed: u128,
    /// The top bits of communication identifiers.
    pub comm_ids: CommIdPrefix,
    /// First and last of the ports that are given to programs that ask for none.
    pub ephemeral_ports: (u16, u16),
    /// Time until a message is retransmitted.
    pub response_timeout: TimeExponent,
    /// Retransmissions of a message, 0 to 15.
    pub max_retries: u8,
    /// The time that this end requests by MRA for its program's answer to a request.
    pub service_timeout: TimeExponent,
    /// The longest time granted to peers that request it by MRA.
    pub max_service_timeout: TimeExponent,
    /// The ACK timeout of queue pairs, which the peer adopts.
    pub ack_timeout: TimeExponent,
    /// Longest time that this end takes to acknowledge a packet.
    pub ack_delay: TimeExponent,
    /// The RNR NAK delays of queue pairs.
    pub rnr_timers: RnrTimers,
    /// The largest path MTU that requests may have.
    pub max_path_mtu: PathMtu,
    /// Nanoseconds for which the end of a connection is remembered, at least.
    pub min_time_wait: u64,
    /// Nanoseconds for which the answer to a refused request is kept for retransmission.
    pub linger: u64,
    /// Maximum number of channels.
    pub max_channels: usize,
    /// Maximum number of identifiers.
    pub max_identifiers: usize,
    /// Maximum number of multicast memberships.
    pub max_memberships: usize,
    /// Maximum number of events of an identifier that a program has not fetched: commands that cause more
    /// fail.
    pub max_queued_events: u32,
    /// Maximum backlog of a listener, which sources share.
    pub max_backlog: u32,
    /// Maximum number of requests in progress from one address: further ones are dropped.
    pub max_half_open_per_source: usize,
    /// Maximum number of requests in progress.
    pub max_half_open: usize,
    /// Maximum number of connections that their program has destroyed and that wait for their last messages:
    /// the oldest are removed, but connections whose DREQ is not acknowledged last.
    pub max_lingering: usize,
    /// Requests for ports at which a program may listen soon.
    pub hold: HoldLimits,
}

/// Why a configuration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No ephemeral ports.
    #[error("the last ephemeral port, {last}, is below the first, {first}")]
    Ports {
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// More retransmissions than a REQ can state.
    #[error("{0} retransmissions, but must be 0 to 15")]
    Retries(u8),
    /// More top bits than allowed, or a value that does not fit.
    #[error("the prefix {value} of communication identifiers does not fit {bits} bits")]
    Prefix {
        /// Number of bits.
        bits: u8,
        /// Their value.
        value: u16,
    },
}

impl Config {
    /// The defaults, with one seed for all. Messages are retransmitted after 1.07 s, up to 15 times.
    pub fn new(bearer: Bearer, guid: Guid, seed: u128) -> Self {
        Self {
            bearer,
            guid,
            seed,
            identity_seed: seed,
            comm_ids: CommIdPrefix::default(),
            ephemeral_ports: (32_768, 60_999),
            response_timeout: TimeExponent::new(18),
            max_retries: 15,
            service_timeout: TimeExponent::new(24),
            max_service_timeout: TimeExponent::new(25),
            ack_timeout: TimeExponent::new(16),
            ack_delay: TimeExponent::new(14),
            rnr_timers: RnrTimers::default(),
            max_path_mtu: PathMtu::B4096,
            min_time_wait: 500_000_000,
            linger: 70_000_000_000,
            max_channels: 1 << 16,
            max_identifiers: 1 << 17,
            max_memberships: 1 << 12,
            max_queued_events: 64,
            max_backlog: 1024,
            max_half_open_per_source: 4096,
            max_half_open: 1 << 14,
            max_lingering: 1 << 14,
            hold: HoldLimits::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let (first, last) = self.ephemeral_ports;
        if first == 0 || first > last {
            return Err(ConfigError::Ports { first, last });
        }
        if self.max_retries > 15 {
            return Err(ConfigError::Retries(self.max_retries));
        }
        let CommIdPrefix { bits, value } = self.comm_ids;
        if bits > 16 || u32::from(value) >> bits != 0 {
            return Err(ConfigError::Prefix { bits, value });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_top_bits() {
        assert_eq!(CommIdPrefix { bits: 0, value: 0 }.apply(0xDEAD_BEEF), 0xDEAD_BEEF);
        assert_eq!(CommIdPrefix { bits: 8, value: 0x12 }.apply(0xDEAD_BEEF), 0x12AD_BEEF);
        assert_eq!(CommIdPrefix { bits: 16, value: 0x1234 }.apply(0xDEAD_BEEF), 0x1234_BEEF);
    }

    #[test]
    fn impossible_configurations_are_refused() {
        let config = Config::new(Bearer::Roce, Guid(1), 0);
        assert_eq!(config.check(), Ok(()));
        let ports = Config { ephemeral_ports: (2, 1), ..config.clone() };
        assert_eq!(ports.check(), Err(ConfigError::Ports { first: 2, last: 1 }));
        assert_eq!(Config { max_retries: 16, ..config.clone() }.check(), Err(ConfigError::Retries(16)));
        let prefix = Config { comm_ids: CommIdPrefix { bits: 4, value: 16 }, ..config };
        assert_eq!(prefix.check(), Err(ConfigError::Prefix { bits: 4, value: 16 }));
    }
}
