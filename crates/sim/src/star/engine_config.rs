//! The device configuration of both sides.

use std::net::IpAddr;

use nichrome_rdma::star::{CardAuthentication, ServerSecret};
use nichrome_rdma::{Config, Congestion as Controller, SendWindow, StarConfig};

use super::config::{Congestion, NetworkConfig};

/// Maximum queued packets of a stateless card over all connections; not a limit in practice, the links'
/// queues are.
const WAITING_PACKETS: usize = 1 << 20;

/// Returns the configuration of a device at an address.
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
    // Each packet is its own IP datagram, with identification 0.
    device.roce.sees_identifications = true;
    let secret = ServerSecret::new(device.seed.to_be_bytes());
    let authentication = config.tags.then_some(CardAuthentication { secret });
    let waiting_packets = WAITING_PACKETS;
    device.star = StarConfig { congestion, waiting_packets, authentication, ..StarConfig::default() };
    device
}

/// Returns the code of the shortest timeout of at least `nanos` nanoseconds (IBA 9.7.6.1.3: 4.096 us · 2ⁿ); 0
/// for none.
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
