//! Set-up: two sides of a connection agree over a byte stream which of them is stateless, and the stateless one hands
//! over what the other must know. No I/O: a driver carries the bytes, over TCP or whatever it trusts.
//!
//! ```text
//! both       OFFER ────►  ◄──── OFFER       roles follow from the two: each side computes them
//! stateless  ADMISSION ────►                start, domain, key, memory table
//! stateful   ◄──── READY                    or REFUSAL, which either may send in place of its next message
//! ```
//!
//! | wishes | the stateless side |
//! |---|---|
//! | one `Own`, the other not | that one |
//! | one `Peers`, the other `Automatic` | the other |
//! | both `Automatic` | the one without room for state; with room on both sides there is none, and the connection is RoCE |
//! | both `Own`, or both `Peers` | an error |
//!
//! The stateful side must have room, and the stateless side receives of its own.

mod message;
mod terms;

use self::message::{SetupMessage, read, write};
pub use self::terms::{
    Admission, Agreement, Credentials, MAX_REGIONS, Offer, QueueDepth, Receives, Refusal, Room, SetupError,
    Side, Timers, Wish,
};

/// What two offers come to; each side finds the mirror image of what the other does.
///
/// # Errors
/// The wishes contradict each other, or the roles cannot be taken.
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
    let (server, client, client_side) = match stateless {
        Side::Ours => (ours, theirs, Side::Theirs),
        Side::Theirs => (theirs, ours, Side::Ours),
    };
    if client.room == Room::Full {
        return Err(SetupError::NoRoom(client_side));
    }
    if server.receives == Receives::Shared {
        return Err(SetupError::SharedReceives(stateless));
    }
    Ok(Agreement::Star { stateless })
}

/// What a driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupEvent {
    /// The connection is RoCE, with this peer. Set-up is over.
    Roce(Offer),
    /// This side is stateless: [`Setup::admit`] the peer, or [`Setup::refuse`].
    Admit(Offer),
    /// This side is stateful: take in what the server says and [`Setup::accept`], or [`Setup::refuse`].
    Accept(Offer, Admission),
    /// The peer that was admitted is ready. Set-up is over.
    Ready(Offer),
}

/// The offer that the bytes of another side begin with, `None` where it is not all there yet: who is called is known before
/// an offer is made.
///
/// # Errors
/// They begin with something else.
pub fn peek_offer(bytes: &[u8]) -> Result<Option<Offer>, SetupError> {
    match read(&mut bytes.to_vec())? {
        Some(SetupMessage::Offer(offer)) => Ok(Some(offer)),
        Some(_) => Err(SetupError::OutOfTurn),
        None => Ok(None),
    }
}

enum State {
    /// For the other side's offer.
    Waiting,
    /// For the driver, to admit this peer.
    Admitting(Offer),
    /// For the ready of this peer.
    Admitted(Offer),
    /// For the admission by this peer.
    Applying(Offer),
    /// For the driver, to accept.
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

impl Setup {
    /// Begins with this side's offer.
    pub fn new(ours: Offer) -> Self {
        let mut output = Vec::new();
        write(&SetupMessage::Offer(ours), &mut output);
        Self { ours, state: State::Waiting, input: Vec::new(), output }
    }

    /// What is to be sent, and was not taken before.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Takes in bytes of the other side. What is kept of them is less than one message.
    ///
    /// # Errors
    /// There will be no connection; from then on the same error.
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
                Ok(Some(message)) => match self.take(message) {
                    Ok(None) => {}
                    Ok(Some(new)) => event = Some(new),
                    Err(error) => self.state = State::Failed(error),
                },
                Err(error) => self.state = State::Failed(error),
            }
        }
    }

    fn take(&mut self, message: SetupMessage) -> Result<Option<SetupEvent>, SetupError> {
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
    /// There is nobody to admit, or there are more than [`MAX_REGIONS`]: refuse, or admit with fewer.
    pub fn admit(&mut self, admission: Admission) -> Result<(), SetupError> {
        let State::Admitting(peer) = self.state else { return Err(SetupError::OutOfTurn) };
        if admission.regions.len() > MAX_REGIONS {
            return Err(SetupError::TooManyRegions(admission.regions.len()));
        }
        write(&SetupMessage::Admission(admission), &mut self.output);
        self.state = State::Admitted(peer);
        Ok(())
    }

    /// Tells the server of [`SetupEvent::Accept`] that it may begin. Set-up is over.
    ///
    /// # Errors
    /// There is nothing to accept.
    pub fn accept(&mut self) -> Result<(), SetupError> {
        let State::Accepting = self.state else { return Err(SetupError::OutOfTurn) };
        write(&SetupMessage::Ready, &mut self.output);
        self.state = State::Over;
        Ok(())
    }

    /// Ends set-up. The other side is told unless it is over already.
    pub fn refuse(&mut self, why: Refusal) {
        if !matches!(self.state, State::Over | State::Failed(_)) {
            write(&SetupMessage::Refusal(why), &mut self.output);
            self.state = State::Failed(SetupError::Refused(why));
        }
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// Set-up was not over.
    pub fn end(&self) -> Result<(), SetupError> {
        match self.state {
            State::Over => Ok(()),
            State::Failed(error) => Err(error),
            _ => Err(SetupError::Truncated),
        }
    }
}
