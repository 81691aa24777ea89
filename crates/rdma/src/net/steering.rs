//! Steering: which of several processes at one address receives a datagram.

use nichrome_wire::rdma::QpNumber;

/// Number of the top bits of a queue pair's or connection's 24-bit number that select the process at an
/// address. Datagrams that leave together are for the same process: on the same machine, Linux steers a
/// UDP_SEGMENT message by its first datagram.
pub const STEERING_BITS: u32 = 5;

/// The part of a datagram that selects the receiving process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SteeringKey(u8);

impl SteeringKey {
    /// The key of management datagrams, which are steered by their content: each is sent alone.
    pub(crate) const MANAGEMENT: Self = Self(u8::MAX);

    /// Returns the key of datagrams for the process that has this queue pair or connection number.
    #[inline]
    pub(crate) const fn of(number: QpNumber) -> Self {
        if number.value() <= QpNumber::GENERAL_SERVICES.value() {
            return Self::MANAGEMENT;
        }
        Self((number.value() >> (24 - STEERING_BITS)) as u8)
    }

    /// Returns true if a datagram with this key reaches the right process behind one with the key `first`.
    #[inline]
    pub(crate) fn may_follow(self, first: Self) -> bool {
        self == first && self != Self::MANAGEMENT
    }
}
