//! MPA's start-up at the end that opened the stream.

use std::fmt;

use nichrome_wire::Instant;
use nichrome_wire::iwarp::{
    Crc, Fpdu, MessageNumber, MpaFrame, MpaFrameKind, Opcode, STag, Segment, SegmentDestination,
    TerminateCode, Terminated, fpdu_len,
};

use super::Established;
use super::agreement::of_initiator;
use super::error::SetupError;
use super::options::{Options, REPLY_TIMEOUT, Revision};

/// Sends the Request and waits for the Reply.
pub struct Initiator {
    options: Options,
    /// Received bytes of an incomplete Reply.
    input: Vec<u8>,
    output: Vec<u8>,
    deadline: Instant,
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator")
            .field("options", &self.options)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Initiator {
    /// Begins with a Request, with up to 508 bytes of private data; siw takes 251.
    pub fn new(options: Options, private_data: &[u8], now: Instant) -> Self {
        let request = MpaFrame {
            kind: MpaFrameKind::Request,
            flags: options.flags(),
            revision: if options.revision == Revision::Two { 2 } else { 1 },
            enhanced: options.enhanced(),
            private_data,
        };
        let mut output = Vec::new();
        request.write(&mut output);
        Self { options, input: Vec::new(), output, deadline: now + REPLY_TIMEOUT }
    }

    /// Returns the bytes to send, once. After an error, a TERMINATE may be among them.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns the deadline of the Reply.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Receives bytes of the peer. Returns the connection when the Reply is complete; the caller must not
    /// call this method again then.
    ///
    /// # Errors
    /// The connection is not set up. The stream is to be closed after the output is sent.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<Established>, SetupError> {
        self.input.extend(bytes);
        let Some((reply, len)) = MpaFrame::parse(&self.input)? else { return Ok(None) };
        if reply.kind != MpaFrameKind::Reply {
            return Err(SetupError::WrongFrame);
        }
        if reply.flags.reject {
            return Err(SetupError::Rejected(reply.private_data.to_vec()));
        }
        match of_initiator(&self.options, &reply) {
            Ok(terms) => {
                let (private_data, rest) = (reply.private_data.to_vec(), self.input[len..].to_vec());
                Ok(Some(Established { terms, private_data, rest }))
            }
            Err(error) => {
                // To a peer that requests markers no TERMINATE is sent, since it would need them: that peer
                // only sees the end of the stream.
                if let Some(code) = error.terminate().filter(|_| !reply.flags.markers) {
                    let crc = self.options.crc || reply.flags.crc;
                    self.output.extend(terminate(code, if crc { Crc::Used } else { Crc::Unused }));
                }
                Err(error)
            }
        }
    }
}

/// Returns the FPDU of a TERMINATE that no segment caused.
fn terminate(error: TerminateCode, crc: Crc) -> Vec<u8> {
    let mut message = Vec::new();
    Terminated::write(error, None, &mut message);
    let destination =
        SegmentDestination::Untagged { message: MessageNumber::FIRST, offset: 0, invalidate: STag(0) };
    let segment = Segment { is_last: true, opcode: Opcode::Terminate, destination };
    let len = segment.header_len() + message.len();
    let mut fpdu = vec![0; fpdu_len(len)];
    if let Some(payload) = Fpdu::ulpdu_mut(&mut fpdu, len).and_then(|ulpdu| segment.write(ulpdu)) {
        payload.copy_from_slice(&message);
        Fpdu::finish(&mut fpdu, len, crc);
    }
    fpdu
}
