//! Completion queue elements, sent by the client to the server's driver.

use crate::bytes::{array, be32, put};
use crate::rdma::{ImmediateData, RKey};

use super::error::StarError;

/// The result of a request, as in `enum ibv_wc_status`, 0 to 21.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StatusCode(u8);

impl StatusCode {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// Flushed: the program closed the connection, or the queue pair was in error (`IBV_WC_WR_FLUSH_ERR`).
    pub const FLUSHED: Self = Self(5);
    /// Any other error (`IBV_WC_GENERAL_ERR`).
    pub const GENERAL: Self = Self(21);

    /// Creates a status; `None` above 21.
    pub const fn new(code: u8) -> Option<Self> {
        if code <= Self::GENERAL.0 { Some(Self(code)) } else { None }
    }

    /// The number.
    pub const fn code(self) -> u8 {
        self.0
    }
}

/// The completed operation, as in `enum ibv_wc_opcode`; also [`Self::Connection`] for the whole connection,
/// and [`Self::ReceiveRequest`], a request for receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Completed {
    /// A SEND of the server.
    Send = 0,
    /// A WRITE of the server.
    Write = 1,
    /// A READ of the server.
    Read = 2,
    /// A compare and swap of the server.
    CompareSwap = 3,
    /// A fetch and add of the server.
    FetchAdd = 4,
    /// A receive of the server, filled by a SEND.
    Receive = 128,
    /// A receive of the server, consumed by a WRITE with immediate data.
    ReceiveWithWrite = 129,
    /// No completion: the client requests the server's shared receives before the number in `wr_id`.
    ReceiveRequest = 254,
    /// The connection: the client has closed it and sends no more completions.
    Connection = 255,
}

impl Completed {
    const ALL: [Self; 9] = [
        Self::Send,
        Self::Write,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::Receive,
        Self::ReceiveWithWrite,
        Self::ReceiveRequest,
        Self::Connection,
    ];

    /// Returns true for the completion of an operation in the server's send queue.
    #[must_use]
    pub fn is_of_send(self) -> bool {
        match self {
            Self::Send | Self::Write | Self::Read | Self::CompareSwap | Self::FetchAdd => true,
            Self::Receive | Self::ReceiveWithWrite | Self::ReceiveRequest | Self::Connection => false,
        }
    }

    /// Returns true for the completion of a receive of the server.
    #[must_use]
    pub fn is_of_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveWithWrite)
    }

    fn new(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|completed| *completed as u8 == code)
    }
}

/// Extra data of a message for the server's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CqeNotice {
    /// Four bytes chosen by the sender.
    Immediate(ImmediateData),
    /// A key that the server's driver must invalidate before it reports the completion.
    Invalidate(RKey),
}

/// A completion queue element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cqe {
    /// The identifier from the work element.
    pub wr_id: u64,
    /// The result.
    pub status: StatusCode,
    /// The operation.
    pub completed: Completed,
    /// Bytes received, read or sent.
    pub len: u32,
    /// Extra data of a received message.
    pub notice: Option<CqeNotice>,
}

impl Cqe {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 20;

    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, StarError> {
        let field = array(bytes, 16);
        Ok(Self {
            wr_id: u64::from_be_bytes(array(bytes, 0)),
            status: StatusCode::new(bytes[8]).ok_or(StarError::Status(bytes[8]))?,
            completed: Completed::new(bytes[9]).ok_or(StarError::Completed(bytes[9]))?,
            len: be32(bytes, 12),
            notice: match bytes[10] {
                0 => None,
                1 => Some(CqeNotice::Immediate(ImmediateData(field))),
                2 => Some(CqeNotice::Invalidate(RKey(u32::from_be_bytes(field)))),
                unknown => return Err(StarError::Notice(unknown)),
            },
        })
    }

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let (notice, field) = match self.notice {
            None => (0, [0; 4]),
            Some(CqeNotice::Immediate(data)) => (1, data.0),
            Some(CqeNotice::Invalidate(key)) => (2, key.0.to_be_bytes()),
        };
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.wr_id.to_be_bytes());
        put(&mut bytes, 8, [self.status.0, self.completed as u8, notice]);
        put(&mut bytes, 12, self.len.to_be_bytes());
        put(&mut bytes, 16, field);
        bytes
    }
}
