//! The device configuration of both sides.

use nichrome_rdma::{Config, Congestion, SelectiveRepeat, SendWindow, StarConfig};

use super::config::{Packets, TestbedConfig, Transport};
use super::datagram;
use crate::HostId;

/// The configuration of a device.
pub(super) fn device_config(address: HostId, testbed: &TestbedConfig) -> Config {
    let mut config = Config::new(vec![address.ip().into()]);
    config.seed = u128::from(testbed.seed);
    if let Transport::Packets(packets) = testbed.transport {
        let mtu = datagram::path_mtu(testbed.tcp.mtu).bytes();
        let window = (testbed.tcp.send_buffer / mtu).clamp(1, 65_535) as u32;
        let congestion = testbed.datagram_congestion;
        // Without congestion control, the requester sends a whole window at once.
        let initial = if congestion == Congestion::None { window } else { config.window.initial.min(window) };
        config.window = SendWindow { initial, max: window, read: initial.min(256) };
        config.roce.congestion = congestion;
        // Each datagram is its own IP packet, with identification 0.
        config.roce.sees_identifications = true;
        config.roce.held_packets = window as usize;
        if packets == Packets::RoceGoBackN {
            config.roce.selective_repeat = SelectiveRepeat::Never;
        }
        config.star = StarConfig { congestion, ..StarConfig::default() };
    }
    config
}
