//! MPA's start-up at the end that accepted the stream.

use std::fmt;

use nichrome_wire::Instant;
use nichrome_wire::iwarp::{MpaFlags, MpaFrame, MpaFrameKind};

use super::Established;
use super::agreement::of_responder;
use super::error::SetupError;
use super::options::{Options, REQUEST_TIMEOUT};

/// Waits for the Request, and sends the Reply that the caller chooses.
pub struct Responder {
    /// The Request, or its first bytes.
    input: Vec<u8>,
    output: Vec<u8>,
    deadline: Instant,
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Responder {
    /// Begins to wait for the Request at `now`.
    pub fn new(now: Instant) -> Self {
        Self { input: Vec::new(), output: Vec::new(), deadline: now + REQUEST_TIMEOUT }
    }

    /// Returns the bytes to send, once.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns the deadline of the Request.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Receives bytes of the peer. Returns the Request's private data when the Request is complete; the
    /// caller then accepts or rejects it.
    ///
    /// # Errors
    /// The connection is not set up, and the stream is to be closed.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<&[u8]>, SetupError> {
        self.input.extend(bytes);
        let Some((request, len)) = MpaFrame::parse(&self.input)? else { return Ok(None) };
        if request.kind != MpaFrameKind::Request {
            return Err(SetupError::WrongFrame);
        }
        if self.input.len() > len {
            return Err(SetupError::EarlyData);
        }
        Ok(Some(request.private_data))
    }

    /// Returns the IRD and the ORD of a complete Request; `None` for one that it does not have.
    pub fn depths(&self) -> (Option<u16>, Option<u16>) {
        let enhanced = match MpaFrame::parse(&self.input) {
            Ok(Some((request, _))) => request.enhanced,
            _ => None,
        };
        enhanced.map_or((None, None), |enhanced| (enhanced.ird, enhanced.ord))
    }

    /// Accepts the Request, with up to 508 bytes of private data; siw takes 251.
    ///
    /// # Errors
    /// There is no Request, or it offers no ready-to-receive message in peer-to-peer mode. The latter is
    /// rejected.
    pub fn accept(&mut self, options: &Options, private_data: &[u8]) -> Result<Established, SetupError> {
        let (request, _) = MpaFrame::parse(&self.input)?.ok_or(SetupError::WrongFrame)?;
        let (terms, enhanced) = match of_responder(options, &request) {
            Ok(agreed) => agreed,
            Err(error) => {
                self.reject(&[]);
                return Err(error);
            }
        };
        let (kind, revision, flags) = (MpaFrameKind::Reply, request.revision, options.flags());
        MpaFrame { kind, flags, revision, enhanced, private_data }.write(&mut self.output);
        Ok(Established { terms, private_data: request.private_data.to_vec(), rest: Vec::new() })
    }

    /// Rejects the Request.
    pub fn reject(&mut self, private_data: &[u8]) {
        let Ok(Some((request, _))) = MpaFrame::parse(&self.input) else { return };
        let (kind, revision, enhanced) = (MpaFrameKind::Reply, request.revision, request.enhanced);
        let flags = MpaFlags { reject: true, ..MpaFlags::default() };
        MpaFrame { kind, flags, revision, enhanced, private_data }.write(&mut self.output);
    }
}
