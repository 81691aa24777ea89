//! The configuration of a device.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeBounds;

use nichrome_wire::rdma::PathMtu;
use thiserror::Error;

use crate::congestion::{Congestion, SendWindow};
use crate::core::attributes::QpType;
use crate::core::limits::Limits;
use crate::core::protection::Protection;
use crate::iwarp::IwarpConfig;
use crate::roce::RoceConfig;
use crate::star::StarConfig;

/// The configuration of a device.
#[derive(Clone, Debug)]
pub struct Config {
    /// The device's addresses: its GID table. 1 to 256 entries.
    pub addresses: Vec<IpAddr>,
    /// The largest path MTU.
    pub mtu: PathMtu,
    /// The lowest queue pair number, 2 to 2²⁴ − 2. Numbers are in `first_qp..first_qp + limits.qps`; the
    /// first one assigned is derived from the seed.
    pub first_qp: u32,
    /// Maximum number and size of objects.
    pub limits: Limits,
    /// Bounds of a queue pair's window, in packets.
    pub window: SendWindow,
    /// Secret from which memory keys and queue pair numbers are derived. Drivers draw it from the kernel's
    /// random number generator.
    pub seed: u128,
    /// The transport of queue pairs for which no other is negotiated.
    pub native: Native,
    /// Configuration of RoCE.
    pub roce: RoceConfig,
    /// Configuration of StaR.
    pub star: StarConfig,
    /// Configuration of iWARP.
    pub iwarp: IwarpConfig,
}

impl Config {
    /// Creates a configuration with these addresses and default values. The seed is 0: keys are predictable.
    pub fn new(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            mtu: PathMtu::B4096,
            first_qp: 0x11,
            limits: Limits::default(),
            window: SendWindow::default(),
            seed: 0,
            native: Native::default(),
            roce: RoceConfig::default(),
            star: StarConfig::default(),
            iwarp: IwarpConfig::default(),
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
            check(name, &value, min..=max, || format!("between {min} and {max}"))?;
        }
        let controllers = [&self.roce.congestion, &self.star.congestion];
        for dcqcn in controllers.into_iter().filter_map(Congestion::dcqcn) {
            check("dcqcn.gain", &dcqcn.gain, 0.0..=1.0, || "between 0 and 1".into())?;
            for (name, value, min) in dcqcn.minima() {
                check(name, &value, min.., || format!("at least {min}"))?;
            }
        }
        Ok(())
    }
}

/// Fails if `value` is not within `range`, whose text for the error is `described`.
fn check<T: PartialOrd + Display>(
    name: &'static str,
    value: &T,
    range: impl RangeBounds<T>,
    described: impl FnOnce() -> String,
) -> Result<(), ConfigError> {
    match range.contains(value) {
        true => Ok(()),
        false => Err(ConfigError { name, value: value.to_string(), range: described() }),
    }
}

/// The transport of queue pairs for which no other is negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Native {
    /// RoCEv2.
    #[default]
    Roce,
    /// iWARP, with its state table. RC queue pairs only, which send and receive once they are connected
    /// ([`Device::connect`](crate::Device::connect) with [`Terms`](crate::iwarp::Terms)).
    Iwarp,
}

impl Native {
    /// Returns true if the transport has queue pairs of this service.
    pub(super) fn has(self, kind: QpType) -> bool {
        self == Self::Roce || kind == QpType::Rc
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

impl AsRef<IwarpConfig> for Config {
    fn as_ref(&self) -> &IwarpConfig {
        &self.iwarp
    }
}

/// A value of a [`Config`] that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} is {value}, but must be {range}")]
pub struct ConfigError {
    name: &'static str,
    value: String,
    range: String,
}
