//! MADs of the connection manager: the header, and the messages by attribute.

use super::body::{Body, HEADER_LEN, MAD_LEN};
use super::error::CmError;
use super::identifier::TransactionId;
use super::messages::{Apr, Drep, Dreq, Lap, Mra, Rtu};
use super::reject::Rej;
use super::rep::Rep;
use super::req::Req;
use super::sidr::{SidrRep, SidrReq};
use crate::bytes::{array, be16, be32, put};
use crate::rdma::QKey;

/// The key of every queue pair 1.
pub const GSI_QKEY: QKey = QKey(0x8001_0000);

/// Base version 1, the class of communication management (7) in version 2, method Send (3).
const CLASS: [u8; 4] = [1, 7, 2, 3];

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names of chapter 12.
pub enum Attribute {
    Req = 0x10,
    Mra = 0x11,
    Rej = 0x12,
    Rep = 0x13,
    Rtu = 0x14,
    Dreq = 0x15,
    Drep = 0x16,
    SidrReq = 0x17,
    SidrRep = 0x18,
    Lap = 0x19,
    Apr = 0x1A,
}

/// A message of the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is documented at its type.
#[allow(clippy::large_enum_variant)] // All are as large as a MAD.
pub enum Message {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
    Lap(Lap),
    Apr(Apr),
}

/// A MAD of the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// The transaction.
    pub transaction: TransactionId,
    /// The message.
    pub message: Message,
}

impl Mad {
    /// Reads the payload of a datagram. Ignores the status and reserved fields, and the attribute modifier of
    /// messages that do not use it.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn parse(payload: &[u8]) -> Result<Self, CmError> {
        let bytes: &[u8; MAD_LEN] = payload.try_into().map_err(|_| CmError::Length(payload.len()))?;
        if bytes[..4] != CLASS {
            return Err(CmError::Class);
        }
        let transaction = TransactionId(u64::from_be_bytes(array(bytes, 8)));
        let message = Message::from_body(be16(bytes, 16), &array(bytes, HEADER_LEN), be32(bytes, 20))?;
        Ok(Self { transaction, message })
    }

    /// The payload of a datagram.
    pub fn to_bytes(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        put(&mut bytes, 0, CLASS);
        put(&mut bytes, 8, self.transaction.0.to_be_bytes());
        put(&mut bytes, 16, (self.message.attribute() as u16).to_be_bytes());
        put(&mut bytes, 20, self.message.options().to_be_bytes());
        put(&mut bytes, HEADER_LEN, self.message.to_body());
        bytes
    }
}

impl Message {
    fn from_body(attribute: u16, body: &Body, options: u32) -> Result<Self, CmError> {
        Ok(match attribute {
            0x10 => Self::Req(Req::from_body(body, options)?),
            0x11 => Self::Mra(Mra::from_body(body)?),
            0x12 => Self::Rej(Rej::from_body(body)?),
            0x13 => Self::Rep(Rep::from_body(body, options)),
            0x14 => Self::Rtu(Rtu::from_body(body)),
            0x15 => Self::Dreq(Dreq::from_body(body)),
            0x16 => Self::Drep(Drep::from_body(body)),
            0x17 => Self::SidrReq(SidrReq::from_body(body)),
            0x18 => Self::SidrRep(SidrRep::from_body(body, options)),
            0x19 => Self::Lap(Lap::from_body(body)),
            0x1A => Self::Apr(Apr::from_body(body)),
            unknown => return Err(CmError::Attribute(unknown)),
        })
    }

    fn to_body(self) -> Body {
        match self {
            Self::Req(message) => message.to_body(),
            Self::Mra(message) => message.to_body(),
            Self::Rej(message) => message.to_body(),
            Self::Rep(message) => message.to_body(),
            Self::Rtu(message) => message.to_body(),
            Self::Dreq(message) => message.to_body(),
            Self::Drep(message) => message.to_body(),
            Self::SidrReq(message) => message.to_body(),
            Self::SidrRep(message) => message.to_body(),
            Self::Lap(message) => message.to_body(),
            Self::Apr(message) => message.to_body(),
        }
    }

    /// The kind of the message.
    pub const fn attribute(&self) -> Attribute {
        match self {
            Self::Req(_) => Attribute::Req,
            Self::Mra(_) => Attribute::Mra,
            Self::Rej(_) => Attribute::Rej,
            Self::Rep(_) => Attribute::Rep,
            Self::Rtu(_) => Attribute::Rtu,
            Self::Dreq(_) => Attribute::Dreq,
            Self::Drep(_) => Attribute::Drep,
            Self::SidrReq(_) => Attribute::SidrReq,
            Self::SidrRep(_) => Attribute::SidrRep,
            Self::Lap(_) => Attribute::Lap,
            Self::Apr(_) => Attribute::Apr,
        }
    }

    /// The attribute modifier: the vendor's options in the messages that carry them.
    const fn options(&self) -> u32 {
        match self {
            Self::Req(message) => message.ece.options,
            Self::Rep(message) => message.ece.options,
            Self::SidrRep(message) => message.ece.options,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::identifier::{CommId, CommIds};
    use super::*;

    #[test]
    fn a_mad_has_256_bytes_of_the_class() {
        let rtu =
            Rtu { ids: CommIds { local: CommId(1), remote: CommId(2) }, private_data: Default::default() };
        let mad = Mad { transaction: TransactionId(3), message: Message::Rtu(rtu) };
        let mut bytes = mad.to_bytes();
        assert_eq!(Mad::parse(&bytes), Ok(mad));
        assert_eq!(Mad::parse(&bytes[1..]), Err(CmError::Length(255)));
        for at in 0..4 {
            bytes[at] ^= 1;
            assert_eq!(Mad::parse(&bytes), Err(CmError::Class));
            bytes[at] ^= 1;
        }
        bytes[17] = 0x1B;
        assert_eq!(Mad::parse(&bytes), Err(CmError::Attribute(0x1B)));
    }
}
