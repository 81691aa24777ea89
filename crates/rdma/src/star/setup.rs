//! Set-up: two sides of a connection agree over a byte stream which of them is stateless, and the stateless
//! side admits the other. No I/O: a driver carries the bytes, over TCP or another trusted stream.
//!
//! ```text
//! both       OFFER ────►  ◄──── OFFER       each side computes the roles from both offers
//! stateless  ADMISSION ────►                epoch, clock, keys, memory table
//! stateful   ◄──── READY                    either side may send a REFUSAL in place of its next message
//! ```
//!
//! | wishes | the stateless side |
//! |---|---|
//! | one `Own`, the other not | the side with `Own` |
//! | one `Peers`, the other `Automatic` | the side with `Automatic` |
//! | both `Automatic` | the side without room for state; with room on both sides, none: the connection is RoCE |
//! | both `Own`, or both `Peers` | an error |
//!
//! The stateful side must have room.

mod message;
mod terms;

use std::fmt;

use self::message::{SetupMessage, read, write};
pub use self::terms::{
    Admission, Agreement, Credentials, MAX_REGIONS, Offer, QueueDepth, Receives, Refusal, Room, SetupError,
    Side, Timers, Wish,
};

/// Computes the agreement of two offers. Both sides compute the same roles.
///
/// # Errors
/// The wishes contradict each other, or a side cannot take its role.
pub fn agree(ours: &Offer, theirs: &Offer) -> Result<Agreement, SetupError> {
    let stateless = match (ours.wish, theirs.wish) {
        (Wish::Own, Wish::Own) => return Err(SetupError::BothStateless),
        (Wish::Peers, Wish::Peers) => return Err(SetupError::BothStateful),
        (Wish::Own, _) | (_, Wish::Peers) => Side::Ours,
        (Wish::Peers, _) | (_, Wish::Own) => Side::Theirs,
        (Wish::Automatic, Wish::Automatic) => match (ours.room, theirs.room) {
            (Room::Free, Room::Free) => return Ok(Agreement::Roce),
            (Room::Full, _) => Side::Ours,
            (Room::Free, Room::Full) => Side::Theirs,
        },
    };
    let (client, client_side) = match stateless {
        Side::Ours => (theirs, Side::Theirs),
        Side::Theirs => (ours, Side::Ours),
    };
    if client.room == Room::Full {
        return Err(SetupError::NoRoom(client_side));
    }
    Ok(Agreement::Star { stateless })
}

/// The driver's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupEvent {
    /// The connection is RoCE, with this peer. Set-up is complete.
    Roce(Offer),
    /// This side is stateless: [`Setup::admit`] the peer, or [`Setup::refuse`].
    Admit(Offer),
    /// This side is stateful: apply the server's admission and [`Setup::accept`], or [`Setup::refuse`].
    Accept(Offer, Admission),
    /// The admitted peer is ready. Set-up is complete.
    Ready(Offer),
}

/// Reads the offer at the front of the peer's bytes without consuming it; `None` if it is incomplete. A
/// listener learns from it which queue pair the peer wants. Also returns the number of bytes behind the
/// offer.
///
/// # Errors
/// The bytes begin with something else.
pub fn peek_offer(bytes: &[u8]) -> Result<Option<(Offer, usize)>, SetupError> {
    let mut rest = bytes.to_vec();
    match read(&mut rest)? {
        Some(SetupMessage::Offer(offer)) => Ok(Some((offer, rest.len()))),
        Some(_) => Err(SetupError::OutOfTurn),
        None => Ok(None),
    }
}

enum State {
    /// Waits for the peer's offer.
    Waiting,
    /// Waits for the driver to admit this peer.
    Admitting(Offer),
    /// Waits for READY of this peer.
    Admitted(Offer),
    /// Waits for the admission by this peer.
    Applying(Offer),
    /// Waits for the driver to accept.
    Accepting,
    Over,
    Failed(SetupError),
}

/// One side of a set-up.
pub struct Setup {
    ours: Offer,
    state: State,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("ours", &self.ours).finish_non_exhaustive()
    }
}

impl Setup {
    /// Begins with this side's offer.
    pub fn new(ours: Offer) -> Self {
        let mut output = Vec::new();
        write(&SetupMessage::Offer(ours), &mut output);
        Self { ours, state: State::Waiting, input: Vec::new(), output }
    }

    /// Returns the bytes to send, once.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Receives bytes of the peer. Buffers less than one message.
    ///
    /// # Errors
    /// Set-up failed; further calls return the same error.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<SetupEvent>, SetupError> {
        self.input.extend(bytes);
        let mut event = None;
        loop {
            if let State::Failed(error) = self.state {
                self.input = Vec::new();
                return Err(error);
            }
            match read(&mut self.input) {
                Ok(None) => return Ok(event),
                Ok(Some(message)) => match self.process(message) {
                    Ok(None) => {}
                    Ok(Some(new)) => event = Some(new),
                    Err(error) => self.state = State::Failed(error),
                },
                Err(error) => self.state = State::Failed(error),
            }
        }
    }

    fn process(&mut self, message: SetupMessage) -> Result<Option<SetupEvent>, SetupError> {
        if let SetupMessage::Refusal(refusal) = message {
            return Err(SetupError::Refused(refusal));
        }
        let (state, event) = match (std::mem::replace(&mut self.state, State::Over), message) {
            (State::Waiting, SetupMessage::Offer(peer)) => match agree(&self.ours, &peer)? {
                Agreement::Roce => (State::Over, Some(SetupEvent::Roce(peer))),
                Agreement::Star { stateless: Side::Ours } => {
                    (State::Admitting(peer), Some(SetupEvent::Admit(peer)))
                }
                Agreement::Star { stateless: Side::Theirs } => (State::Applying(peer), None),
            },
            (State::Applying(peer), SetupMessage::Admission(admission)) => {
                (State::Accepting, Some(SetupEvent::Accept(peer, admission)))
            }
            (State::Admitted(peer), SetupMessage::Ready) => (State::Over, Some(SetupEvent::Ready(peer))),
            _ => return Err(SetupError::OutOfTurn),
        };
        self.state = state;
        Ok(event)
    }

    /// Admits the peer of [`SetupEvent::Admit`].
    ///
    /// # Errors
    /// No peer waits for admission, or the admission has more than [`MAX_REGIONS`]: refuse, or admit with
    /// fewer.
    pub fn admit(&mut self, admission: Admission) -> Result<(), SetupError> {
        let State::Admitting(peer) = self.state else { return Err(SetupError::OutOfTurn) };
        if admission.regions.len() > MAX_REGIONS {
            return Err(SetupError::TooManyRegions(admission.regions.len()));
        }
        write(&SetupMessage::Admission(admission), &mut self.output);
        self.state = State::Admitted(peer);
        Ok(())
    }

    /// Sends READY to the server of [`SetupEvent::Accept`]. Set-up is complete.
    ///
    /// # Errors
    /// No admission waits to be accepted.
    pub fn accept(&mut self) -> Result<(), SetupError> {
        let State::Accepting = self.state else { return Err(SetupError::OutOfTurn) };
        write(&SetupMessage::Ready, &mut self.output);
        self.state = State::Over;
        Ok(())
    }

    /// Ends set-up with a REFUSAL, unless it is complete.
    pub fn refuse(&mut self, why: Refusal) {
        if !matches!(self.state, State::Over | State::Failed(_)) {
            write(&SetupMessage::Refusal(why), &mut self.output);
            self.state = State::Failed(SetupError::Refused(why));
        }
    }

    /// Handles the end of the stream.
    ///
    /// # Errors
    /// Set-up was not complete.
    pub fn end(&self) -> Result<(), SetupError> {
        match self.state {
            State::Over => Ok(()),
            State::Failed(error) => Err(error),
            _ => Err(SetupError::Truncated),
        }
    }
}
