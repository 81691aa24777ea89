//! Checks whether an interface can have IPv6 addresses.

use std::fs;

use nichrome_wire::Ipv6Header;
use thiserror::Error;

use crate::netlink::Interface;

/// The kernel's IPv6 settings, in the network namespace of the reading thread.
const SETTINGS: &str = "/proc/sys/net/ipv6";

/// The reason why an interface has no IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoIpv6 {
    /// The kernel was built or booted without IPv6.
    #[error("this kernel has no IPv6")]
    Kernel,
    /// The interface MTU is below the minimum of IPv6.
    #[error("IPv6 needs an interface MTU of {least} bytes (RFC 8200)", least = Ipv6Header::LEAST_MTU)]
    Mtu,
    /// IPv6 is disabled by sysctl.
    #[error("IPv6 is disabled (sysctl net.ipv6.conf.default.disable_ipv6)")]
    SwitchedOff,
}

impl Interface {
    /// Checks that the interface can have IPv6 addresses. It must be in the network namespace of this thread.
    pub fn check_ipv6(&self) -> Result<(), NoIpv6> {
        if !fs::exists(SETTINGS).unwrap_or(false) {
            return Err(NoIpv6::Kernel);
        }
        if self.mtu < u32::from(Ipv6Header::LEAST_MTU) {
            return Err(NoIpv6::Mtu);
        }
        let disabled = fs::read_to_string(format!("{SETTINGS}/conf/{}/disable_ipv6", self.name));
        if disabled.is_ok_and(|value| value.trim() != "0") { Err(NoIpv6::SwitchedOff) } else { Ok(()) }
    }
}
