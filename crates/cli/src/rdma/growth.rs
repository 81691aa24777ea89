//! Growth of a process's memory with its connections.

use std::fs;

use serde::Serialize;
use stats_alloc::Stats;

use crate::allocator::ALLOCATOR;

/// Growth of the process's memory per connection before the first message, in bytes; `None` below 1000
/// connections.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Growth {
    /// Resident memory.
    #[serde(skip_serializing_if = "Option::is_none", rename = "bytes_per_qp")]
    pub(super) resident: Option<u64>,
    /// Memory that the program has allocated and not freed.
    #[serde(skip_serializing_if = "Option::is_none", rename = "heap_bytes_per_qp")]
    pub(super) heap: Option<u64>,
}

/// Minimum number of connections to measure memory with: the memory of fewer is too small beside the
/// process's other allocations.
const MIN_TO_MEASURE: usize = 1000;

/// The process's memory at one time.
pub(super) struct Memory {
    resident: Option<u64>,
    heap: u64,
}

impl Memory {
    pub(super) fn now() -> Self {
        let Stats { bytes_allocated, bytes_deallocated, .. } = ALLOCATOR.stats();
        Self { resident: resident(), heap: (bytes_allocated - bytes_deallocated) as u64 }
    }

    /// Returns the growth since this measurement, divided by `count` connections.
    pub(super) fn growth(&self, count: usize) -> Growth {
        if count < MIN_TO_MEASURE {
            return Growth::default();
        }
        let now = Self::now();
        let each = |now: u64, before: u64| now.saturating_sub(before) / count as u64;
        Growth {
            resident: now.resident.zip(self.resident).map(|(now, before)| each(now, before)),
            heap: Some(each(now.heap, self.heap)),
        }
    }
}

/// Returns the process's resident memory in bytes.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}
