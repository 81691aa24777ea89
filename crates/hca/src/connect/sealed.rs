//! Encrypts the bytes of a handshake under a pre-shared key: Noise NNpsk0 (revision 34).
//!
//! ```text
//! the side that connects   magic, frame(psk, e) ────►
//! the other side           ◄──── frame(e, ee)
//! both                     frame(ciphertext) ◄───►       the handshake's bytes, in parts
//! ```
//!
//! A frame is its length (2 bytes, big endian) and a message. A peer without the key fails at the first
//! message, before any Diffie-Hellman computation; a replayed first message ends at the first ciphertext. The
//! keys of the ciphertexts are new for each connection and are forgotten with it. Without a key the bytes
//! pass as they are.

use std::io::ErrorKind;
use std::mem;
use std::net::IpAddr;

use nichrome_rdma::QpNumber;
use nichrome_wire::Instant;
use snow::{Builder, HandshakeState, TransportState};

use super::handshake::{Cause, Context, Handshake, Phase, RequestOf, Route};
use super::key::{PreSharedKey, SealError};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

/// The first bytes of an encrypted stream; no plain handshake begins with them.
const MAGIC: [u8; 4] = *b"NPSK";

/// Bytes of a message that are not payload: an ephemeral key and the tag.
const KEY_LEN: usize = 32;
const TAG_LEN: usize = 16;

/// Most payload of a ciphertext.
const MAX_PAYLOAD: usize = 16 << 10;

/// Most payload of a ciphertext before a request of this side matches the peer.
const MAX_OPENING: usize = 1 << 10;

/// A handshake whose bytes are encrypted if its context has a key.
pub(crate) struct Sealed<H> {
    handshake: H,
    is_caller: bool,
    channel: Channel,
}

enum Channel {
    /// No byte has been received or sent.
    New,
    /// No key, and the peer's first bytes have not been checked for the magic.
    Opened,
    Plain,
    Keyed(Box<Keyed>),
}

/// The encryption of one connection.
struct Keyed {
    state: State,
    /// Less than one frame.
    input: Vec<u8>,
    output: Vec<u8>,
    /// The peer's magic has arrived. Always true on the side that connects: it receives no magic.
    has_magic: bool,
}

enum State {
    /// Noise's handshake messages are being exchanged.
    Handshake(Box<HandshakeState>),
    Transport(Box<TransportState>),
    Failed,
}

impl Keyed {
    fn new(key: &PreSharedKey, is_caller: bool) -> Result<Self, SealError> {
        let failed = |_| SealError::Failed;
        let builder = Builder::new(PATTERN.parse().map_err(failed)?).psk(0, &key.0).map_err(failed)?;
        let state = if is_caller { builder.build_initiator() } else { builder.build_responder() };
        let state = State::Handshake(Box::new(state.map_err(failed)?));
        let mut keyed = Self { state, input: Vec::new(), output: Vec::new(), has_magic: is_caller };
        if is_caller {
            keyed.output.extend(MAGIC);
            keyed.advance()?;
        }
        Ok(keyed)
    }

    /// Sends the message of this side's turn, then enters the transport phase if the handshake is complete.
    fn advance(&mut self) -> Result<(), SealError> {
        let State::Handshake(state) = &mut self.state else { return Ok(()) };
        if state.is_my_turn() && !state.is_handshake_finished() {
            let mut message = [0; KEY_LEN + TAG_LEN];
            let len = state.write_message(&[], &mut message).map_err(|_| SealError::Failed)?;
            push_frame(&mut self.output, &message[..len]);
        }
        if state.is_handshake_finished()
            && let State::Handshake(state) = mem::replace(&mut self.state, State::Failed)
        {
            let transport = state.into_transport_mode().map_err(|_| SealError::Failed)?;
            self.state = State::Transport(Box::new(transport));
        }
        Ok(())
    }

    /// Adds bytes of the peer to the input, and checks and removes the magic.
    fn push(&mut self, bytes: &[u8]) -> Result<(), SealError> {
        self.input.extend(bytes);
        if !self.has_magic {
            let known = self.input.len().min(MAGIC.len());
            if self.input[..known] != MAGIC[..known] {
                return Err(SealError::PeerHasNoKey);
            }
            self.has_magic = known == MAGIC.len();
            if self.has_magic {
                self.input.drain(..MAGIC.len());
            }
        }
        Ok(())
    }

    /// Decrypts the next frame, of at most `max` bytes of payload; `None` if it is incomplete. Messages of
    /// the handshake have no payload.
    fn next_payload(&mut self, max: usize) -> Result<Option<Vec<u8>>, SealError> {
        let Some(len) = self.input.first_chunk().filter(|_| self.has_magic) else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes(*len));
        let limit = match self.state {
            State::Transport(_) => max + TAG_LEN,
            _ => KEY_LEN + TAG_LEN,
        };
        if len > limit {
            return Err(SealError::WrongKey);
        }
        let Some(message) = self.input.get(2..2 + len) else { return Ok(None) };
        let mut payload = vec![0; len];
        let read = match &mut self.state {
            State::Handshake(state) => state.read_message(message, &mut payload),
            State::Transport(state) => state.read_message(message, &mut payload),
            State::Failed => return Err(SealError::Failed),
        };
        payload.truncate(read.map_err(|_| SealError::WrongKey)?);
        self.input.drain(..2 + len);
        self.advance()?;
        Ok(Some(payload))
    }

    /// Encrypts bytes of the handshake.
    fn seal(&mut self, bytes: &[u8]) -> Result<(), SealError> {
        let State::Transport(state) = &mut self.state else { return Err(SealError::Failed) };
        let mut message = vec![0; MAX_PAYLOAD + TAG_LEN];
        for part in bytes.chunks(MAX_PAYLOAD) {
            let len = state.write_message(part, &mut message).map_err(|_| SealError::Failed)?;
            push_frame(&mut self.output, &message[..len]);
        }
        Ok(())
    }
}

/// Appends a frame of fewer than 64 KiB.
fn push_frame(output: &mut Vec<u8>, message: &[u8]) {
    output.extend((message.len() as u16).to_be_bytes());
    output.extend(message);
}

impl<H: Handshake> Sealed<H> {
    fn new(handshake: H, is_caller: bool) -> Self {
        Self { handshake, is_caller, channel: Channel::New }
    }

    /// Chooses the channel by the context's key.
    fn open(&mut self, context: &H::Context) -> Result<(), SealError> {
        if matches!(self.channel, Channel::New) {
            self.channel = match context.key() {
                None => Channel::Opened,
                Some(key) => Channel::Keyed(Box::new(Keyed::new(key, self.is_caller)?)),
            };
        }
        Ok(())
    }

    fn take(&mut self, context: &mut H::Context, bytes: &[u8], now: Instant) -> Result<(), SealError> {
        self.open(context)?;
        match &mut self.channel {
            Channel::New => Err(SealError::Failed),
            Channel::Opened if bytes.first() == MAGIC.first() => Err(SealError::PeerHasKey),
            Channel::Opened | Channel::Plain => {
                self.channel = Channel::Plain;
                self.handshake.receive(context, bytes, now);
                Ok(())
            }
            Channel::Keyed(keyed) => {
                keyed.push(bytes)?;
                loop {
                    let is_known = matches!(self.handshake.phase(), Phase::Running | Phase::Closing);
                    let max = if is_known { MAX_PAYLOAD } else { MAX_OPENING };
                    let Some(payload) = keyed.next_payload(max)? else { return Ok(()) };
                    if !payload.is_empty() && self.handshake.phase() != Phase::Done {
                        self.handshake.receive(context, &payload, now);
                    }
                }
            }
        }
    }
}

impl<H: Handshake> Handshake for Sealed<H> {
    type Context = H::Context;

    fn inbound(peer: IpAddr, now: Instant) -> Self {
        Self::new(H::inbound(peer, now), false)
    }

    fn outbound(request: RequestOf<H>, context: &mut H::Context, now: Instant) -> Option<(Route, Self)> {
        let (route, handshake) = H::outbound(request, context, now)?;
        let mut sealed = Self::new(handshake, true);
        match sealed.open(context) {
            Ok(()) => Some((route, sealed)),
            Err(error) => {
                sealed.handshake.close(context, Cause::Seal(error));
                None
            }
        }
    }

    fn receive(&mut self, context: &mut H::Context, bytes: &[u8], now: Instant) {
        if let Err(error) = self.take(context, bytes, now) {
            self.handshake.close(context, Cause::Seal(error));
        }
    }

    fn resume(&mut self, context: &mut H::Context, now: Instant) {
        self.handshake.resume(context, now);
    }

    fn close(&mut self, context: &mut H::Context, cause: Cause) {
        let in_handshake =
            matches!(&self.channel, Channel::Keyed(keyed) if matches!(keyed.state, State::Handshake(_)));
        let cause = match cause {
            Cause::Closed if in_handshake => Cause::Seal(SealError::Unanswered),
            Cause::Io(error) if in_handshake && error.kind() == ErrorKind::ConnectionReset => {
                Cause::Seal(SealError::Unanswered)
            }
            cause => cause,
        };
        self.handshake.close(context, cause);
    }

    fn take_output(&mut self) -> Vec<u8> {
        match &mut self.channel {
            Channel::New | Channel::Opened | Channel::Plain => self.handshake.take_output(),
            Channel::Keyed(keyed) => {
                if let State::Transport(_) = keyed.state {
                    let bytes = self.handshake.take_output();
                    // Fails only when the nonces of 2⁶⁴ messages are used up. The peer then sees the end of
                    // the stream.
                    let _ = keyed.seal(&bytes);
                }
                mem::take(&mut keyed.output)
            }
        }
    }

    fn phase(&self) -> Phase {
        self.handshake.phase()
    }

    fn qp(&self) -> Option<QpNumber> {
        self.handshake.qp()
    }

    fn deadline(&self) -> Instant {
        self.handshake.deadline()
    }
}

#[cfg(test)]
mod tests;
