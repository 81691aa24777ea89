//! What a device is made with.

use std::net::IpAddr;

use nichrome_wire::rdma::PathMtu;
use thiserror::Error;

use crate::congestion::SendWindow;
use crate::core::limits::Limits;
use crate::core::protection::Protection;
use crate::roce::RoceConfig;
use crate::star::StarConfig;

/// What a device is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The device's addresses: its GID table. At least one.
    pub addresses: Vec<IpAddr>,
    /// The largest path MTU.
    pub mtu: PathMtu,
    /// The lowest number of a queue pair, between 2 and 2²⁴ − 2. Queue pairs take `limits.qps` numbers from it on, one after
    /// the other from a number on that follows from the seed.
    pub first_qp: u32,
    /// Bounds on what programs may ask for.
    pub limits: Limits,
    /// How many packets queue pairs have outstanding.
    pub window: SendWindow,
    /// What memory keys and queue pair numbers follow from. A driver draws it from the kernel's random numbers: whoever
    /// knows it knows all keys of the device.
    pub seed: u128,
    /// RoCE.
    pub roce: RoceConfig,
    /// StaR.
    pub star: StarConfig,
}

impl Config {
    /// A device with these addresses and otherwise common values.
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            mtu: PathMtu::B4096,
            first_qp: 0x11,
            limits: Limits::default(),
            window: SendWindow::default(),
            seed: 0,
            roce: RoceConfig::default(),
            star: StarConfig::default(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        let ranges = [
            ("addresses", self.addresses.len(), 1, 256),
            ("first_qp", self.first_qp as usize, 2, 0xFF_FFFE),
            ("first_qp + limits.qps", self.first_qp as usize + limits.qps, 3, 0xFF_FFFF),
            ("limits.keys", limits.keys, 1, Protection::MAX_KEYS),
            ("limits.sges", limits.sges, 1, 255),
            ("limits.inline", limits.inline, 0, 1 << 16),
            ("limits.message", limits.message as usize, 1, 1 << 30),
            ("limits.rd_atomic", usize::from(limits.rd_atomic), 0, 255),
            ("window.initial", self.window.initial as usize, 1, self.window.max as usize),
            ("window.max", self.window.max as usize, 1, 1 << 20),
            ("window.read", self.window.read as usize, 1, self.window.initial as usize),
        ];
        for (name, value, min, max) in ranges {
            if !(min..=max).contains(&value) {
                return Err(ConfigError { name, value, min, max });
            }
        }
        Ok(())
    }
}

impl AsRef<RoceConfig> for Config {
    fn as_ref(&self) -> &RoceConfig {
        &self.roce
    }
}

impl AsRef<StarConfig> for Config {
    fn as_ref(&self) -> &StarConfig {
        &self.star
    }
}

/// A value of a [`Config`] that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} is {value}, but must be between {min} and {max}")]
pub struct ConfigError {
    name: &'static str,
    value: usize,
    min: usize,
    max: usize,
}
