//! Setting up a connection on a transport: what a driver asks of a device while it negotiates, without the device
//! knowing what is negotiated.

use thiserror::Error;

use super::Endpoint;
use crate::core::attributes::{QpState, QpType};
use crate::core::error::ObjectError;
use crate::core::memory::Memory;
use crate::core::queue_pair::QueuePair;
use crate::core::verbs::Verbs;

/// A question about a queue pair that is being set up, for [`Device::ask`](crate::Device::ask).
pub trait Question {
    /// The answer.
    type Answer;
}

/// What answers a [`Question`].
pub(crate) trait Answerable<M: Memory>: Question {
    /// The transport that is asked.
    type Endpoint: Endpoint;

    fn answer(
        self,
        qp: &QueuePair,
        scope: Scope<'_, M, <Self::Endpoint as Endpoint>::Shared>,
    ) -> Result<Self::Answer, ConnectError>;
}

/// What was negotiated for a queue pair, for [`Device::connect`](crate::Device::connect).
pub(crate) trait Agreed<M: Memory> {
    /// The transport that was agreed on.
    type Endpoint: Endpoint;

    /// Whether the queue pair can be put on it.
    fn check(&self, qp: &QueuePair) -> Result<(), ConnectError>;

    fn connect(
        &self,
        qp: QueuePair,
        shared: &mut <Self::Endpoint as Endpoint>::Shared,
        verbs: &mut Verbs<M>,
    ) -> Self::Endpoint;
}

/// What a [`Question`] may look at.
pub(crate) struct Scope<'a, M, S> {
    pub(crate) shared: &'a S,
    pub(crate) verbs: &'a Verbs<M>,
    /// Queue pairs of the device.
    pub(crate) qps: usize,
}

/// What a transport has to say of itself, for [`Device::view`](crate::Device::view).
pub(crate) trait View {
    type Shared;

    fn of(shared: &Self::Shared) -> Self;
}

/// Why a connection was not set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// An object is missing.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The transport has reliable connections only.
    #[error("the transport has no {0:?} service")]
    Service(QpType),
    /// The queue pair is connected, or not yet in a state to be, or has work.
    #[error("a queue pair in state {0:?} with what it has begun cannot be put on another transport")]
    State(QpState),
    /// The stateless side hands its receives to one client: it must have its own.
    #[error("a queue pair with a shared receive queue cannot be stateless")]
    SharedReceives,
}
