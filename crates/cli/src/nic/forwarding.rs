//! Checks for forwarding, by IP or by a bridge: a forwarding host cannot restore the original packets of
//! lossy aggregates. Linux disables LRO for the same reason (`dev_disable_lro`).

use std::fs;

use nichrome_port::{Interface, InterfaceName};

/// Returns true if the kernel forwards packets from an interface, in the network namespace of this thread.
pub(super) fn is_enabled(host: InterfaceName) -> bool {
    ["ipv4", "ipv6"].into_iter().any(|family| {
        let setting = format!("/proc/sys/net/{family}/conf/{host}/forwarding");
        // A kernel without the address family has no such setting.
        fs::read_to_string(setting).is_ok_and(|value| value.trim() != "0")
    })
}

/// Returns the reason why `profile` is not for this host, if it forwards.
pub(super) fn why_not_suitable(host: &Interface, profile: &str) -> Option<String> {
    let name = host.name;
    if host.is_bridged {
        return Some(format!(
            "{name} is a port of a bridge, which forwards, and the original packets of {profile}'s aggregates cannot be restored: \
             use --profile gro, which is lossless, or 'ip link set {name} nomaster'"
        ));
    }
    is_enabled(name).then(|| why_not_forwarding(name, profile))
}

/// Returns the reason why `profile` is not for a host with IP forwarding.
pub(super) fn why_not_forwarding(host: InterfaceName, profile: &str) -> String {
    format!(
        "forwarding is enabled on {host}, and the original packets of {profile}'s aggregates cannot be restored: \
         use --profile gro, which is lossless, or disable forwarding"
    )
}
