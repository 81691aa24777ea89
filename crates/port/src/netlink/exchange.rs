//! Requests to rtnetlink(7) and their answers.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::error::NetlinkError;

/// Maximum number of attempts at a dump. The result of the last is used even if changes have interrupted it.
const MAX_DUMP_ATTEMPTS: usize = 10;

/// A socket for one request after another.
pub(super) struct Exchange {
    socket: Socket,
    /// The sequence number of the last request.
    sequence: AtomicU32,
}

impl Exchange {
    /// Opens a socket in the network namespace of this thread.
    pub(super) fn open() -> Result<Self, NetlinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(Self { socket, sequence: AtomicU32::new(0) })
        };
        open().map_err(|error| NetlinkError::Refused { what: "open a netlink socket".into(), error })
    }

    /// Sends a dump request and collects the answers of all its messages. Repeats a dump that changes have
    /// interrupted, which may lack messages.
    pub(super) fn list(
        &self,
        message: &RouteNetlinkMessage,
        what: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let refused = |error| NetlinkError::Refused { what: what(), error };
        let mut dump = Dump::default();
        for _ in 0..MAX_DUMP_ATTEMPTS {
            dump = Dump::default();
            let sequence = self.send(message.clone(), NLM_F_DUMP).map_err(refused)?;
            while !dump.is_done {
                dump.read(&self.receive(sequence).map_err(refused)?, &what)?;
            }
            if !dump.is_interrupted {
                break;
            }
        }
        Ok(dump.messages)
    }

    /// Sends a request and returns the answer; `None` for a plain acknowledgement.
    pub(super) fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<Option<RouteNetlinkMessage>, NetlinkError> {
        let answer = self.send(message, flags).and_then(|sequence| self.receive(sequence));
        let answer = answer.map_err(|error| NetlinkError::Refused { what: what(), error })?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(|_| NetlinkError::Answer { what: what() })?;
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
            NetlinkPayload::Error(error) if error.code.is_some() => {
                Err(NetlinkError::Refused { what: what(), error: error.to_io() })
            }
            _ => Ok(None),
        }
    }

    /// Sends a request; returns its sequence number.
    pub(super) fn send(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<u32> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.socket.send(&serialize(message, flags, sequence), 0)?;
        Ok(sequence)
    }

    /// Receives messages that answer the request with this sequence number. Drops the rest of the answer to
    /// an earlier request that was given up at an error.
    fn receive(&self, sequence: u32) -> io::Result<Vec<u8>> {
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let is_other = |first: NetlinkBuffer<_>| first.sequence_number() != sequence;
            if !NetlinkBuffer::new_checked(&answer[..]).is_ok_and(is_other) {
                return Ok(answer);
            }
        }
    }
}

/// The answer to a dump request, as far as it was received.
#[derive(Default)]
struct Dump {
    messages: Vec<RouteNetlinkMessage>,
    is_done: bool,
    /// True if the listed objects changed during the dump (NLM_F_DUMP_INTR): messages may be missing or
    /// repeated.
    is_interrupted: bool,
}

impl Dump {
    /// Adds the messages in `bytes`; `what` describes the request.
    fn read(&mut self, bytes: &[u8], what: impl Fn() -> String) -> Result<(), NetlinkError> {
        let refused = |error| NetlinkError::Refused { what: what(), error };
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_done {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|_| NetlinkError::Answer { what: what() })?;
            // Messages are aligned to 4 bytes (netlink(7)).
            let len = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(len..).unwrap_or(&[]);
            self.is_interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
            match message.payload {
                NetlinkPayload::InnerMessage(message) => self.messages.push(message),
                NetlinkPayload::Error(error) => return Err(refused(error.to_io())),
                // The kernel ended the dump at an error.
                NetlinkPayload::Done(done) if done.code < 0 => {
                    return Err(refused(io::Error::from_raw_os_error(done.code.saturating_neg())));
                }
                NetlinkPayload::Done(_) => self.is_done = true,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Serializes a request.
fn serialize(message: RouteNetlinkMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | flags;
    request.header.sequence_number = sequence;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{DoneMessage, NetlinkHeader};
    use netlink_packet_route::address::AddressMessage;

    use super::*;

    /// Returns the bytes of a message of a dump.
    fn message(flags: u16, payload: NetlinkPayload<RouteNetlinkMessage>) -> Vec<u8> {
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.header.flags = flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn done(code: i32) -> NetlinkPayload<RouteNetlinkMessage> {
        let mut done = DoneMessage::default();
        done.code = code;
        NetlinkPayload::Done(done)
    }

    #[test]
    fn a_dump_that_is_interrupted_or_ends_at_an_error_is_no_list() {
        let address = || RouteNetlinkMessage::NewAddress(AddressMessage::default()).into();
        let read = |messages: &[Vec<u8>]| {
            let mut dump = Dump::default();
            dump.read(&messages.concat(), || "list".into()).map(|()| dump)
        };
        let dump = read(&[message(0, address()), message(0, address()), message(0, done(0))]).unwrap();
        assert_eq!((dump.messages.len(), dump.is_done, dump.is_interrupted), (2, true, false));
        for interrupted in [
            [message(NLM_F_DUMP_INTR, address()), message(0, done(0))],
            [message(0, address()), message(NLM_F_DUMP_INTR, done(0))],
        ] {
            let dump = read(&interrupted).unwrap();
            assert_eq!((dump.messages.len(), dump.is_done, dump.is_interrupted), (1, true, true));
        }
        let error = read(&[message(0, address()), message(0, done(-libc::ENOMEM))]).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "cannot list: Cannot allocate memory (os error 12)");
        assert!(!read(&[message(0, address())]).unwrap().is_done);
    }
}
