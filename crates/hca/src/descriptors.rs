//! The process's limit of descriptors, of which each connection over iWARP takes one.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as this user may.
pub(crate) fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If the kernel refuses, connections beyond the limit fail, each with an error that names the limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The remedy to append to an error that has its own text; empty unless the process has no descriptor left.
pub(crate) fn remedy(error: Errno) -> String {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if error == Errno::MFILE => {
            format!(
                "; this process may have {limit} descriptors (ulimit -n), and each connection over iWARP takes one"
            )
        }
        _ => String::new(),
    }
}
