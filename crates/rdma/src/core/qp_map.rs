//! A hash map by queue pair number.

use nichrome_wire::NumberMap;
use nichrome_wire::rdma::QpNumber;

/// A map by queue pair number, for lookups per packet.
pub(crate) type QpMap<T> = NumberMap<QpNumber, T>;
