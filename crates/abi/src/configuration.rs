//! The device's configuration, read from environment variables, which `nichrome rdma run` or the user sets.
//!
//! | variable | value | default |
//! |---|---|---|
//! | `NICHROME_TRANSPORT` | the device's transport: `roce`, `star` or `iwarp` | `roce` |
//! | `NICHROME_STATELESS` | with `star`, the side of a connection that keeps no state: `self`, `peer`, `auto` | `auto` |
//! | `NICHROME_CONNECTION_BUDGET` | with `star`, the maximum number of connections whose state is kept here | no maximum |
//! | `NICHROME_KEY_FILE` | with `star`, the file of the key under which connections are set up | loopback addresses only |
//! | `NICHROME_AUTHENTICATE` | `0`: with `star`, packets are not authenticated; loopback addresses only | authenticated |
//! | `NICHROME_CRC` | `1`: with `iwarp`, ask for CRCs | CRCs if the peer asks |
//! | `NICHROME_IP` | the device's address, one of this machine's | a free address in 127.0.0.0/8 |
//! | `NICHROME_IFACE` | the interface whose first address the device takes | |
//! | `NICHROME_MTU` | maximum payload of a packet in bytes: 256, 512, 1024, 2048, 4096 | the largest that fits the interface |
//! | `NICHROME_PACKETS` | `1`: receive from the interfaces (AF_PACKET), which needs CAP_NET_RAW | receive from a UDP socket |
//! | `NICHROME_LOSS`, `_DELAY`, `_JITTER`, `_REORDER`, `_DUPLICATE`, `_CORRUPT`, `_RATE` | as the options of `nichrome wan` | no faults |
//! | `NICHROME_SEED` | seed of the faults, memory keys and queue pair numbers | the kernel's random numbers |
//! | `NICHROME_CAPTURE` | pcapng file to record packets in | no capture |
//! | `NICHROME_STATS` | `1`: print the counters to standard error when the program exits | no counters |
//! | `NICHROME_DOCTOR` | existing file to append the program's verbs and device paths to | no record |

use std::env::{self, VarError};
use std::ffi::OsString;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use nichrome_hca::{AdapterConfig, Faults, IwarpOptions, Place, Reception, StarOptions, Transport};
use nichrome_port::udp::local_addresses;
use nichrome_rdma::PathMtu;
use nichrome_wan::Impairments;
use thiserror::Error;

/// The device's transport.
pub const TRANSPORT: &str = "NICHROME_TRANSPORT";
/// The side of a connection that keeps no state.
pub const STATELESS: &str = "NICHROME_STATELESS";
/// Maximum number of connections whose state is kept here.
pub const CONNECTION_BUDGET: &str = "NICHROME_CONNECTION_BUDGET";
/// The file of the key under which StaR's connections are set up.
pub const KEY_FILE: &str = "NICHROME_KEY_FILE";
/// `0` if packets to the stateless side are not authenticated.
pub const AUTHENTICATE: &str = "NICHROME_AUTHENTICATE";
/// `1` if iWARP asks for CRCs.
pub const CRC: &str = "NICHROME_CRC";
/// The device's IP address.
pub const IP: &str = "NICHROME_IP";
/// The interface whose first address the device takes.
pub const INTERFACE: &str = "NICHROME_IFACE";
/// Maximum payload of a packet in bytes.
pub const MTU: &str = "NICHROME_MTU";
/// Whether to receive from the interfaces instead of a UDP socket.
pub const PACKETS: &str = "NICHROME_PACKETS";
/// Packet loss.
pub const LOSS: &str = "NICHROME_LOSS";
/// Delay of packets.
pub const DELAY: &str = "NICHROME_DELAY";
/// Variation of the delay.
pub const JITTER: &str = "NICHROME_JITTER";
/// Share of packets held back so that later packets overtake them.
pub const REORDER: &str = "NICHROME_REORDER";
/// Share of packets that are duplicated.
pub const DUPLICATE: &str = "NICHROME_DUPLICATE";
/// Share of packets in which one bit is flipped.
pub const CORRUPT: &str = "NICHROME_CORRUPT";
/// Rate of the bottleneck.
pub const RATE: &str = "NICHROME_RATE";
/// Seed of the faults, memory keys and queue pair numbers.
pub const SEED: &str = "NICHROME_SEED";
/// pcapng file to record packets in.
pub const CAPTURE: &str = "NICHROME_CAPTURE";
/// Whether to print the counters when the program exits.
pub const STATS: &str = "NICHROME_STATS";

/// File to append verbs and device paths to, for `nichrome rdma doctor`.
pub const DOCTOR: &str = "NICHROME_DOCTOR";

/// An invalid variable, or a failure to resolve one.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// A variable has an invalid value.
    #[error("{name}={value}: {reason}")]
    Value {
        /// The variable's name.
        name: &'static str,
        /// The invalid value.
        value: String,
        /// Why the value is invalid.
        reason: String,
    },
    /// The interfaces cannot be listed.
    #[error("cannot list this machine's addresses: {0}")]
    Addresses(std::io::Error),
}

/// The device's configuration.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The adapter to open.
    pub adapter: AdapterConfig,
    /// Whether to print the counters when the device closes.
    pub prints_stats: bool,
}

impl Configuration {
    /// Reads the configuration from the environment.
    ///
    /// # Errors
    /// A variable has an invalid value, or the machine's addresses cannot be listed.
    pub fn from_env() -> Result<Self, ConfigurationError> {
        let seed = variable(SEED)?;
        let adapter = AdapterConfig {
            cm: nichrome_hca::cm::CmOptions::default(),
            transport: variable(TRANSPORT)?.unwrap_or_default(),
            star: StarOptions {
                stateless: variable(STATELESS)?.unwrap_or_default(),
                connection_budget: variable(CONNECTION_BUDGET)?,
                authenticates: env::var_os(AUTHENTICATE).is_none_or(|value| value != "0"),
                key_file: variable(KEY_FILE)?,
                report: |why| eprintln!("nichrome: {why}"),
            },
            iwarp: IwarpOptions { crc: is_set(CRC), report: |why| eprintln!("nichrome: {why}") },
            place: place()?,
            mtu: variable::<PayloadBytes>(MTU)?.map(|PayloadBytes(mtu)| mtu),
            reception: if is_set(PACKETS) { Reception::Packets } else { Reception::Socket },
            faults: faults(seed)?,
            capture: variable::<PathBuf>(CAPTURE)?,
            seed,
        };
        Ok(Self { adapter, prints_stats: is_set(STATS) })
    }
}

/// Returns true if the variable is `1`.
fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| value == "1")
}

/// Returns true if the device's transport is iWARP.
pub(crate) fn is_iwarp() -> bool {
    matches!(variable(TRANSPORT), Ok(Some(Transport::Iwarp)))
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

/// Returns the address of `NICHROME_IP` or `NICHROME_IFACE`; `None` if neither is set or the interface has no address.
pub(crate) fn configured_address() -> Option<IpAddr> {
    match place() {
        Ok(Place::Address(address)) => Some(address),
        _ => None,
    }
}

/// Returns the address that these values of `NICHROME_IP` and `NICHROME_IFACE` set; `None` if they set none.
pub(crate) fn address_at([ip, interface]: &[Option<OsString>; 2]) -> Option<IpAddr> {
    let text = |value: &Option<OsString>| value.as_ref().and_then(|value| Some(value.to_str()?.to_owned()));
    match text(ip).filter(|ip| !ip.is_empty()) {
        Some(ip) => ip.parse().ok(),
        None => address_of(&text(interface)?).ok()?,
    }
}

/// Returns the interface's first IPv4 address, else its first IPv6 address that is not link-local.
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

/// Reads the fault variables; `None` if none is set.
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

/// Overwrites `field` if the variable is set.
fn set<T>(field: &mut T, name: &'static str) -> Result<(), ConfigurationError>
where
    T: FromStr<Err: Display>,
{
    if let Some(value) = variable(name)? {
        *field = value;
    }
    Ok(())
}

/// Parses a variable; `None` if it is unset or empty.
fn variable<T>(name: &'static str) -> Result<Option<T>, ConfigurationError>
where
    T: FromStr<Err: Display>,
{
    let value = match env::var(name) {
        Ok(value) if !value.is_empty() => value,
        Ok(_) | Err(VarError::NotPresent) => return Ok(None),
        Err(VarError::NotUnicode(value)) => {
            let (value, reason) = (value.to_string_lossy().into_owned(), "the value is not UTF-8".to_owned());
            return Err(ConfigurationError::Value { name, value, reason });
        }
    };
    value.parse().map(Some).map_err(|error: T::Err| {
        let reason = error.to_string();
        ConfigurationError::Value { name, value, reason }
    })
}

/// A path MTU, parsed from its payload in bytes.
struct PayloadBytes(PathMtu);

impl FromStr for PayloadBytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes: Option<usize> = text.parse().ok();
        let found = PathMtu::ALL.into_iter().find(|mtu| Some(mtu.bytes()) == bytes);
        found.map(Self).ok_or("a path MTU is 256, 512, 1024, 2048 or 4096")
    }
}
