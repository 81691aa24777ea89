//! The rule that the IPv4 identifications of merged segments follow.

/// How the IPv4 identification goes on from segment to segment of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identification {
    /// One more each.
    Incrementing,
    /// The same in all.
    Fixed,
    /// As it came: the profile does not keep it.
    Any,
}
