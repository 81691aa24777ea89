//! What the environment decides. `nichrome rdma run` sets these variables; they can be set without it.
//!
//! | variable | value | without it |
//! |---|---|---|
//! | `NICHROME_TRANSPORT` | what the device speaks: `roce`, `star` | `roce` |
//! | `NICHROME_STATELESS` | with `star`, which side of a connection keeps no state: `self`, `peer`, `auto` | `auto` |
//! | `NICHROME_CONNECTION_BUDGET` | with `star`, connections whose state is kept here at most | any number |
//! | `NICHROME_AUTHENTICATE` | with `star`, `1`: packets to a stateless side must be authenticated | they need not |
//! | `NICHROME_IP` | the device's address, one of this machine's | a free one of 127.0.0.0/8 |
//! | `NICHROME_IFACE` | an interface whose first address is the device's | |
//! | `NICHROME_MTU` | bytes of payload in a packet: 256, 512, 1024, 2048, 4096 | the most that fits the interface |
//! | `NICHROME_PACKETS` | `1`: receive packets from the interfaces, which needs CAP_NET_RAW | a socket |
//! | `NICHROME_LOSS`, `_DELAY`, `_JITTER`, `_REORDER`, `_DUPLICATE`, `_CORRUPT`, `_RATE` | as the options of `nichrome wan` | no faults |
//! | `NICHROME_SEED` | what the choices of the faults, memory keys and queue pair numbers come from | the kernel's random numbers |
//! | `NICHROME_CAPTURE` | the file to record packets in (pcapng) | no capture |
//! | `NICHROME_STATS` | `1`: what was done is printed at the end | nothing is |
//! | `NICHROME_DOCTOR` | a file that exists: what the program asks for is appended | nothing is recorded |

use std::env::{self, VarError};
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use nichrome_hca::{AdapterConfig, Faults, Place, Reception, StarOptions};
use nichrome_port::udp::local_addresses;
use nichrome_rdma::PathMtu;
use nichrome_wan::Impairments;
use thiserror::Error;

/// What the device speaks.
pub const TRANSPORT: &str = "NICHROME_TRANSPORT";
/// Which side of a connection keeps no state.
pub const STATELESS: &str = "NICHROME_STATELESS";
/// Connections whose state is kept here at most.
pub const CONNECTION_BUDGET: &str = "NICHROME_CONNECTION_BUDGET";
/// Whether packets to a stateless side must be authenticated.
pub const AUTHENTICATE: &str = "NICHROME_AUTHENTICATE";
/// The device's address.
pub const IP: &str = "NICHROME_IP";
/// The interface whose first address is the device's.
pub const INTERFACE: &str = "NICHROME_IFACE";
/// Bytes of payload in a packet.
pub const MTU: &str = "NICHROME_MTU";
/// Whether to receive packets from the interfaces.
pub const PACKETS: &str = "NICHROME_PACKETS";
/// Which packets are lost.
pub const LOSS: &str = "NICHROME_LOSS";
/// How long packets take.
pub const DELAY: &str = "NICHROME_DELAY";
/// By how much that varies.
pub const JITTER: &str = "NICHROME_JITTER";
/// Which packets are held back.
pub const REORDER: &str = "NICHROME_REORDER";
/// How likely a packet comes twice.
pub const DUPLICATE: &str = "NICHROME_DUPLICATE";
/// How likely a bit of a packet is flipped.
pub const CORRUPT: &str = "NICHROME_CORRUPT";
/// The bottleneck's rate.
pub const RATE: &str = "NICHROME_RATE";
/// What the choices of the faults come from.
pub const SEED: &str = "NICHROME_SEED";
/// The file to record packets in.
pub const CAPTURE: &str = "NICHROME_CAPTURE";
/// Whether to print what was done.
pub const STATS: &str = "NICHROME_STATS";

/// The file in which calls are recorded, for `nichrome rdma doctor`.
pub const DOCTOR: &str = "NICHROME_DOCTOR";

/// Why the environment is of no use.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// A value is not what the variable takes.
    #[error("{name}={value}: {reason}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it is set to.
        value: String,
        /// What is wrong.
        reason: String,
    },
    /// The interfaces cannot be listed.
    #[error("cannot list this machine's addresses: {0}")]
    Addresses(std::io::Error),
}

/// What a device is opened with, and whether it tells at the end what it has done.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// For the adapter.
    pub adapter: AdapterConfig,
    /// Whether to print what was done.
    pub reports: bool,
}

impl Configuration {
    /// As the environment says.
    ///
    /// # Errors
    /// A variable has a value that it does not take.
    pub fn from_env() -> Result<Self, ConfigurationError> {
        let seed = variable(SEED)?;
        let adapter = AdapterConfig {
            transport: variable(TRANSPORT)?.unwrap_or_default(),
            star: StarOptions {
                stateless: variable(STATELESS)?.unwrap_or_default(),
                connection_budget: variable(CONNECTION_BUDGET)?,
                authenticates: is_set(AUTHENTICATE),
                report: |why| eprintln!("nichrome: {why}"),
            },
            place: place()?,
            mtu: variable::<PayloadBytes>(MTU)?.map(|PayloadBytes(mtu)| mtu),
            reception: if is_set(PACKETS) { Reception::Packets } else { Reception::Socket },
            faults: faults(seed)?,
            capture: variable::<PathBuf>(CAPTURE)?,
            seed,
        };
        Ok(Self { adapter, reports: is_set(STATS) })
    }
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| value == "1")
}

fn place() -> Result<Place, ConfigurationError> {
    if let Some(ip) = variable(IP)? {
        return Ok(Place::Address(ip));
    }
    let Some(name) = variable::<String>(INTERFACE)? else { return Ok(Place::Loopback) };
    let found = address_of(&name).map_err(ConfigurationError::Addresses)?;
    let reason = || "this machine has no such interface with an address".to_owned();
    let found =
        found.ok_or_else(|| ConfigurationError::Value { name: INTERFACE, value: name, reason: reason() })?;
    Ok(Place::Address(found))
}

/// The address that the environment names; `None` for one of 127.0.0.0/8, or if the environment names none that is there.
pub(crate) fn configured_address() -> Option<IpAddr> {
    match place() {
        Ok(Place::Address(address)) => Some(address),
        _ => None,
    }
}

/// The interface's first IPv4 address, or its first that is not link-local.
fn address_of(interface: &str) -> std::io::Result<Option<IpAddr>> {
    let addresses: Vec<IpAddr> = local_addresses()?
        .into_iter()
        .filter(|(name, _)| name.as_str() == interface)
        .map(|(_, address)| address)
        .collect();
    let global = |address: &&IpAddr| !matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let found = addresses.iter().find(|address| address.is_ipv4()).or_else(|| addresses.iter().find(global));
    Ok(found.copied())
}

fn faults(seed: Option<u64>) -> Result<Option<Faults>, ConfigurationError> {
    let named = [LOSS, DELAY, JITTER, REORDER, DUPLICATE, CORRUPT, RATE];
    if named.iter().all(|name| env::var_os(name).is_none()) {
        return Ok(None);
    }
    let mut impairments = Impairments {
        loss: variable(LOSS)?,
        jitter: variable(JITTER)?,
        reorder: variable(REORDER)?,
        rate: variable(RATE)?,
        ..Impairments::default()
    };
    set(&mut impairments.delay, DELAY)?;
    set(&mut impairments.duplicate, DUPLICATE)?;
    set(&mut impairments.corrupt, CORRUPT)?;
    let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    Ok(Some(Faults { impairments, seed }))
}

fn set<T>(field: &mut T, name: &'static str) -> Result<(), ConfigurationError>
where
    T: FromStr<Err: Display>,
{
    if let Some(value) = variable(name)? {
        *field = value;
    }
    Ok(())
}

fn variable<T>(name: &'static str) -> Result<Option<T>, ConfigurationError>
where
    T: FromStr<Err: Display>,
{
    let value = match env::var(name) {
        Ok(value) if !value.is_empty() => value,
        Ok(_) | Err(VarError::NotPresent) => return Ok(None),
        Err(VarError::NotUnicode(value)) => {
            let (value, reason) = (value.to_string_lossy().into_owned(), "this is not UTF-8".to_owned());
            return Err(ConfigurationError::Value { name, value, reason });
        }
    };
    value.parse().map(Some).map_err(|error: T::Err| {
        let reason = error.to_string();
        ConfigurationError::Value { name, value, reason }
    })
}

/// A path MTU as its payload.
struct PayloadBytes(PathMtu);

impl FromStr for PayloadBytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes: Option<usize> = text.parse().ok();
        let found = PathMtu::ALL.into_iter().find(|mtu| Some(mtu.bytes()) == bytes);
        found.map(Self).ok_or("a path MTU is 256, 512, 1024, 2048 or 4096")
    }
}
