//! Names of the manager's objects. A name is reused only after 2¹⁵ others were given out.

/// A channel of events: an open file of `/dev/infiniband/rdma_cm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelName(pub u32);

/// An identifier (`rdma_cm_id`): an endpoint that listens, connects or is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdName(pub u32);

/// A membership in a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MembershipName(pub u32);
