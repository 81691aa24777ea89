//! The set-up of one connection: a TCP stream, and what is said over it.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nichrome_rdma::star::{
    Admit, Connect, MakeOffer, Offer, Refusal, Setup, SetupError, SetupEvent, StarRole, Timers, peek_offer,
};
use nichrome_rdma::{Device, Memory, QpState};
use nichrome_wire::{Instant, SeqNumber};
use rustix::net::sockopt::set_socket_linger;
use thiserror::Error;

use super::negotiator::Order;

/// How long a side waits for the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Those of a queue pair whose program has not said them yet, and may never: 67 ms, seven times, receives for ever.
const USUAL_TIMERS: Timers = Timers { timeout: 14, retry_count: 7, rnr_retry: 7, min_rnr_timer: 12 };

/// Bytes of one read.
const CHUNK: usize = 16 << 10;

/// Bytes that a caller may send before it is known whom it calls.
const MOST_BEFORE_OFFER: usize = 1 << 10;

/// Why a connection could not be set up.
#[derive(Debug, Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Connect(#[from] nichrome_rdma::ConnectError),
    #[error("the peer takes no part in StaR's set-up ({0})")]
    Io(#[from] std::io::Error),
    #[error("the peer has not come to StaR's set-up within {} s", PATIENCE.as_secs())]
    Silence,
}

/// What is left to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The other side is awaited.
    Waits,
    /// The connection stands; the other side has not read everything.
    Lingers,
    /// All is said.
    Over,
}

/// One connection's set-up.
pub(super) struct Negotiation {
    stream: TcpStream,
    until: Instant,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Since it is known whom this is for.
    begun: Option<Begun>,
    last_word: Option<LastWord>,
}

/// Who has said the last word of a set-up that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastWord {
    /// This side: it waits until the other has heard.
    Ours,
    /// The other: all is said.
    Theirs,
}

struct Begun {
    order: Order,
    ours: Offer,
    setup: Setup,
}

impl Negotiation {
    pub(super) fn new(stream: TcpStream, now: Instant) -> Self {
        let until = now + PATIENCE;
        Self { stream, until, input: Vec::new(), output: Vec::new(), begun: None, last_word: None }
    }

    pub(super) fn source(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether it waits to be able to write.
    pub(super) fn is_writing(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether the connection stands.
    pub(super) fn is_over(&self) -> bool {
        self.last_word.is_some()
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Ends earlier than it would.
    pub(super) fn hurry(&mut self, until: Instant) {
        self.until = self.until.min(until);
    }

    pub(super) fn order(&self) -> Option<&Order> {
        self.begun.as_ref().map(|begun| &begun.order)
    }

    /// Whose call this is: the caller's address and its offer, once that is whole.
    pub(super) fn caller(&self) -> Result<Option<(IpAddr, Offer)>, SetupError> {
        if self.begun.is_some() {
            return Ok(None);
        }
        let Some(offer) = peek_offer(&self.input)? else {
            return if self.input.len() > MOST_BEFORE_OFFER { Err(SetupError::Garbage) } else { Ok(None) };
        };
        let address = self.stream.peer_addr().map_err(|_| SetupError::Truncated)?;
        Ok(Some((address.ip(), offer)))
    }

    /// Begins with the offer of this side's queue pair.
    pub(super) fn begin<M: Memory>(
        &mut self,
        order: Order,
        first_element: SeqNumber,
        device: &Device<M>,
    ) -> Result<(), Failure> {
        let mut ours = device.ask(order.qp, MakeOffer { wish: order.wish, first_element })?;
        if device.query_qp(order.qp).is_ok_and(|report| report.state == QpState::Rtr) {
            let Timers { min_rnr_timer, .. } = ours.timers;
            ours.timers = Timers { min_rnr_timer, ..USUAL_TIMERS };
        }
        self.begun = Some(Begun { order, ours, setup: Setup::new(ours) });
        Ok(())
    }

    /// Reads, does what is said, and writes.
    pub(super) fn advance<M: Memory>(
        &mut self,
        with_device: impl Fn(&mut dyn FnMut(&mut Device<M>)),
        now: Instant,
    ) -> Result<Progress, Failure> {
        let has_ended = self.read()?;
        if let Some(begun) = &mut self.begun {
            if self.last_word.is_none() {
                let input = std::mem::take(&mut self.input);
                if let Some(event) = begun.setup.receive(&input)? {
                    self.last_word = begun.act(event, with_device)?;
                }
                self.output.extend(begun.setup.take_output());
            }
            if has_ended && self.last_word.is_none() {
                begun.setup.end()?;
            }
        }
        let written = self.write();
        match self.last_word {
            Some(LastWord::Theirs) => return Ok(Progress::Over),
            // An end or an error says that it was heard.
            Some(LastWord::Ours) if has_ended || written.is_err() => return Ok(Progress::Over),
            Some(LastWord::Ours) => return Ok(Progress::Lingers),
            None => written?,
        }
        if has_ended && self.begun.is_none() || now >= self.until {
            return Err(Failure::Silence);
        }
        Ok(Progress::Waits)
    }

    /// Ends the stream without waiting any longer for the other side, which still hears what was said.
    pub(super) fn leave(self) {
        // It ends with a reset otherwise, at which the other side forgets what it has not read.
        let _ = set_socket_linger(&self.stream, None);
    }

    /// Tells the other side, if it still listens, that there will be no connection.
    pub(super) fn refuse(&mut self, why: Refusal) {
        if let Some(begun) = &mut self.begun {
            begun.setup.refuse(why);
            self.output.extend(begun.setup.take_output());
            // It learns of it by the end of the stream otherwise.
            let _ = self.write();
        }
    }

    /// Whether the stream has ended.
    fn read(&mut self) -> Result<bool, std::io::Error> {
        let mut chunk = [0; CHUNK];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(true),
                Ok(len) => self.input.extend(&chunk[..len]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(false),
                    ErrorKind::Interrupted => {}
                    _ if self.last_word.is_some() => return Ok(true),
                    _ => return Err(error),
                },
            }
            if self.begun.is_none() && self.input.len() > MOST_BEFORE_OFFER {
                return Ok(false);
            }
        }
    }

    fn write(&mut self) -> Result<(), std::io::Error> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(len) => drop(self.output.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Begun {
    /// Does what set-up asks for; returns who has said the last word where the connection stands.
    fn act<M: Memory>(
        &mut self,
        event: SetupEvent,
        with_device: impl Fn(&mut dyn FnMut(&mut Device<M>)),
    ) -> Result<Option<LastWord>, Failure> {
        let Self { order, ours, setup } = self;
        let mut result = Ok(());
        match event {
            SetupEvent::Roce(_) => {
                with_device(&mut |device| result = device.release_qp(order.qp));
                result?;
                Ok(Some(if order.calls() { LastWord::Theirs } else { LastWord::Ours }))
            }
            SetupEvent::Admit(theirs) => {
                let role = StarRole::Stateless;
                let mut admission = None;
                with_device(&mut |device| {
                    admission = Some(device.ask(order.qp, Admit(&theirs)));
                    result = device.connect(order.qp, &Connect { ours, theirs: &theirs, role: &role });
                });
                result?;
                if let Some(admission) = admission {
                    setup.admit(admission?)?;
                }
                Ok(None)
            }
            SetupEvent::Accept(theirs, admission) => {
                let role = StarRole::Stateful(admission);
                with_device(&mut |device| {
                    result = device.connect(order.qp, &Connect { ours, theirs: &theirs, role: &role })
                });
                result?;
                setup.accept()?;
                Ok(Some(LastWord::Ours))
            }
            SetupEvent::Ready(_) => Ok(Some(LastWord::Theirs)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_last_word_is_heard_however_late_it_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // As all streams of set-up.
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let mut negotiation = Negotiation::new(stream, Instant::ZERO);
        negotiation.output.extend(b"accepted");
        negotiation.write().unwrap();
        negotiation.leave();
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"accepted");
    }
}
