//! Connection set-up: while a driver negotiates a transport, it asks the device [`Question`]s, whose content
//! the device does not know.

use thiserror::Error;

use super::Endpoint;
use crate::core::attributes::{QpState, QpType};
use crate::core::error::ObjectError;
use crate::core::limits::Limits;
use crate::core::memory::Memory;
use crate::core::queue_pair::QueuePair;
use crate::core::verbs::Verbs;

/// A question about a queue pair that is being set up, for [`Device::ask`](crate::Device::ask).
pub trait Question {
    /// The answer.
    type Answer;
}

/// A [`Question`] and how its transport answers it.
pub(crate) trait Answerable<M: Memory>: Question {
    /// The transport that answers.
    type Endpoint: Endpoint;

    fn answer(
        self,
        qp: &QueuePair,
        scope: Scope<'_, M, <Self::Endpoint as Endpoint>::Shared>,
    ) -> Result<Self::Answer, ConnectError>;
}

/// The result of a negotiation, for [`Device::connect`](crate::Device::connect).
pub(crate) trait Agreed<M: Memory> {
    /// The negotiated transport.
    type Endpoint: Endpoint;

    /// Checks the queue sizes that the peer has announced against the device's limits.
    ///
    /// # Errors
    /// The peer's queues exceed the device's limit.
    fn check(&self, _: &Limits) -> Result<(), ConnectError> {
        Ok(())
    }

    /// Creates the endpoint.
    fn connect(
        &self,
        qp: QueuePair,
        shared: &mut <Self::Endpoint as Endpoint>::Shared,
        verbs: &mut Verbs<M>,
    ) -> Self::Endpoint;
}

/// The state from which a [`Question`] is answered.
pub(crate) struct Scope<'a, M, S> {
    pub(crate) shared: &'a S,
    pub(crate) verbs: &'a Verbs<M>,
    /// Number of queue pairs of the device.
    pub(crate) qps: usize,
}

/// A report on a transport's shared state, for [`Device::view`](crate::Device::view).
pub(crate) trait View {
    type Shared;

    fn of(shared: &Self::Shared) -> Self;
}

/// Why a connection was not set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The queue pair does not exist.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The transport supports RC only.
    #[error("the transport has no {0:?} service")]
    Service(QpType),
    /// The queue pair is in a wrong state, is already set up, or has outstanding sends.
    #[error(
        "a queue pair in state {0:?} that is set up or has outstanding sends cannot change its transport"
    )]
    State(QpState),
    /// The peer's queues, of which this side would keep a copy, exceed the device's limit.
    #[error(
        "the peer announced a queue of {requests} requests, more than the {limit} that this device keeps"
    )]
    Depth {
        /// Requests of the peer's larger queue.
        requests: usize,
        /// [`Limits::wrs`](crate::Limits::wrs).
        limit: usize,
    },
}
