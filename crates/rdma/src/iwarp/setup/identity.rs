//! The private data with which two ends of this crate connect queue pairs by number.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | `NiCr` |
//! | 4 | 1 | version, 1 |
//! | 5 | 3 | the sender's queue pair number |
//! | 8 | 1 | 0 |
//! | 9 | 3 | the receiver's queue pair number |
//!
//! Numbers are in network byte order. Programs of other stacks never see it: they connect by address and
//! port, with private data of their own. A peer that sends it has the operations of RFC 7306, which MPA does
//! not negotiate.

use nichrome_wire::rdma::QpNumber;

const MAGIC: [u8; 4] = *b"NiCr";
const VERSION: u8 = 1;

/// The queue pairs at the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The sender's queue pair.
    pub from: QpNumber,
    /// The receiver's queue pair.
    pub to: QpNumber,
}

impl Identity {
    /// Bytes of private data.
    pub const LEN: usize = 12;

    /// Reads the private data of a start frame; `None` if it is of another stack.
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = private_data.try_into().ok()?;
        let [m0, m1, m2, m3, VERSION, f0, f1, f2, 0, t0, t1, t2] = *bytes else { return None };
        let number = |high, middle, low| QpNumber::new(u32::from_be_bytes([0, high, middle, low]));
        ([m0, m1, m2, m3] == MAGIC).then_some(())?;
        Some(Self { from: number(f0, f1, f2)?, to: number(t0, t1, t2)? })
    }

    /// Returns the private data.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let [m0, m1, m2, m3] = MAGIC;
        let [_, f0, f1, f2] = self.from.value().to_be_bytes();
        let [_, t0, t1, t2] = self.to.value().to_be_bytes();
        [m0, m1, m2, m3, VERSION, f0, f1, f2, 0, t0, t1, t2]
    }
}
