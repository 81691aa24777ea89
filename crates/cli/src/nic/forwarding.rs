//! A host that forwards must not be given packets that cannot be taken apart into those that came.

use std::fs;

use nichrome_port::InterfaceName;

/// Whether the kernel forwards what comes from an interface, in the network namespace of this thread.
pub(super) fn is_on(host: InterfaceName) -> bool {
    ["ipv4", "ipv6"].into_iter().any(|family| {
        let setting = format!("/proc/sys/net/{family}/conf/{host}/forwarding");
        // A kernel without the family forwards nothing of it.
        fs::read_to_string(setting).is_ok_and(|value| value.trim() != "0")
    })
}

/// Why the aggregates of `profile` are not for such a host.
pub(super) fn why_not(host: InterfaceName, profile: &str) -> String {
    format!(
        "forwarding is on for {host}, and what {profile} merges cannot be forwarded as it came: \
         use --profile gro, which is lossless, or turn forwarding off"
    )
}
