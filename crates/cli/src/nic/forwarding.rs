//! Checks for IP forwarding: a forwarding host cannot restore the original packets of lossy aggregates.

use std::fs;

use nichrome_port::InterfaceName;

/// Returns true if the kernel forwards packets from an interface, in the network namespace of this thread.
pub(super) fn is_on(host: InterfaceName) -> bool {
    ["ipv4", "ipv6"].into_iter().any(|family| {
        let setting = format!("/proc/sys/net/{family}/conf/{host}/forwarding");
        // A kernel without the address family has no such setting.
        fs::read_to_string(setting).is_ok_and(|value| value.trim() != "0")
    })
}

/// Returns the reason why `profile` is not for a forwarding host.
pub(super) fn why_not(host: InterfaceName, profile: &str) -> String {
    format!(
        "forwarding is on for {host}, and what {profile} merges cannot be forwarded as it came: \
         use --profile gro, which is lossless, or turn forwarding off"
    )
}
