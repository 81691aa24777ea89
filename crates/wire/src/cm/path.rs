//! The path in a REQ.

use super::identifier::{Gid, TimeExponent};
use crate::bytes::{array, be16, be32, put};

/// A path between two ports (table 106).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The sender's local identifier; 0xFFFF in RoCE.
    pub local_lid: u16,
    /// The receiver's.
    pub remote_lid: u16,
    /// The sender's port.
    pub local_gid: Gid,
    /// The receiver's port.
    pub remote_gid: Gid,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// Rate of the path, 6 bits.
    pub rate: u8,
    /// Traffic class (type of service).
    pub traffic_class: u8,
    /// Hop limit (time to live).
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// The ports are in one subnet.
    pub subnet_local: bool,
    /// The sender's ACK timeout, which the receiver adopts.
    pub ack_timeout: TimeExponent,
}

impl Path {
    pub(super) const LEN: usize = 44;

    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            local_lid: be16(bytes, 0),
            remote_lid: be16(bytes, 2),
            local_gid: Gid(array(bytes, 4)),
            remote_gid: Gid(array(bytes, 20)),
            flow_label: be32(bytes, 36) >> 12,
            rate: bytes[39] & 0x3F,
            traffic_class: bytes[40],
            hop_limit: bytes[41],
            service_level: bytes[42] >> 4,
            subnet_local: bytes[42] & 0x08 != 0,
            ack_timeout: TimeExponent::new(bytes[43] >> 3),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.local_lid.to_be_bytes());
        put(&mut bytes, 2, self.remote_lid.to_be_bytes());
        put(&mut bytes, 4, self.local_gid.0);
        put(&mut bytes, 20, self.remote_gid.0);
        put(&mut bytes, 36, (self.flow_label << 12 | u32::from(self.rate & 0x3F)).to_be_bytes());
        bytes[40] = self.traffic_class;
        bytes[41] = self.hop_limit;
        bytes[42] = self.service_level << 4 | u8::from(self.subnet_local) << 3;
        bytes[43] = self.ack_timeout.exponent() << 3;
        bytes
    }
}
