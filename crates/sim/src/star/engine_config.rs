//! How the devices of both sides are configured.

use std::net::IpAddr;

use nichrome_rdma::{Config, Congestion as Controller, SendWindow, StarConfig};

use super::config::{Congestion, NetworkConfig};

/// Packets that may wait in a stateless card, of all connections: the links' queues are what bounds them.
const WAITING_PACKETS: usize = 1 << 20;

/// The configuration of a device at an address.
pub(super) fn device_config(config: &NetworkConfig, address: IpAddr) -> Config {
    let mut device = Config::new(vec![address]);
    let congestion = match config.congestion {
        Congestion::None => Controller::None,
        Congestion::Dctcp => Controller::Dctcp,
    };
    let window = config.window;
    device.window = SendWindow { initial: window, max: window, read: window.min(32) };
    device.seed = u128::from(config.seed);
    device.roce.congestion = congestion;
    // A packet is a datagram of its own, of identification 0.
    device.roce.sees_identifications = true;
    device.star = StarConfig { congestion, waiting_packets: WAITING_PACKETS, ..StarConfig::default() };
    device
}

/// The code of the shortest timeout that is not below so many nanoseconds (IBA 9.9.2.1.1: 4.096 us · 2ⁿ); 0 for none.
pub(super) fn timeout_code(nanos: Option<u64>) -> u8 {
    let Some(nanos) = nanos else { return 0 };
    (1..31).find(|code| 4096u64 << code >= nanos).unwrap_or(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_powers_of_two() {
        assert_eq!([None, Some(1), Some(8192), Some(500_000)].map(timeout_code), [0, 1, 1, 7]);
    }
}
