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
//! | `NICHROME_LOCAL` | `memory`: packets to this user's other processes on this machine pass through memory if those set it too | `sockets` |
//! | `NICHROME_LOSS`, `_DELAY`, `_JITTER`, `_REORDER`, `_DUPLICATE`, `_CORRUPT`, `_RATE` | as the options of `nichrome wan` | no faults |
//! | `NICHROME_SEED` | seed of the faults, memory keys and queue pair numbers | the kernel's random numbers |
//! | `NICHROME_CAPTURE` | pcapng file to record packets in; `%p` in its name is the process number | no capture |
//! | `NICHROME_STATS` | `1`: print the counters to standard error when the program exits | no counters |
//! | `NICHROME_DOCTOR` | existing file to append the program's verbs and device paths to | no record |

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process;
use std::str::FromStr;

use nichrome_hca::{
    AdapterConfig, Faults, IwarpOptions, LocalPath, Place, Reception, StarOptions, Transport,
};
use nichrome_port::InterfaceName;
use nichrome_port::udp::interface_address;
use nichrome_rdma::PathMtu;
use nichrome_wan::Impairments;
use thiserror::Error;

use crate::stderr::print_lines;
pub use crate::variable::VariableError;
use crate::variable::{check_names, flag, variable};

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
/// `1` if iWARP requests CRCs.
pub const CRC: &str = "NICHROME_CRC";
/// The device's IP address.
pub const IP: &str = "NICHROME_IP";
/// The interface whose first address the device takes.
pub const INTERFACE: &str = "NICHROME_IFACE";
/// Maximum payload of a packet in bytes.
pub const MTU: &str = "NICHROME_MTU";
/// Whether to receive from the interfaces instead of a UDP socket.
pub const PACKETS: &str = "NICHROME_PACKETS";
/// How packets reach other processes of this machine.
pub const LOCAL: &str = "NICHROME_LOCAL";
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

/// All variables of the device.
const ALL: &[&str] = &[
    TRANSPORT,
    STATELESS,
    CONNECTION_BUDGET,
    KEY_FILE,
    AUTHENTICATE,
    CRC,
    IP,
    INTERFACE,
    MTU,
    PACKETS,
    LOCAL,
    LOSS,
    DELAY,
    JITTER,
    REORDER,
    DUPLICATE,
    CORRUPT,
    RATE,
    SEED,
    CAPTURE,
    STATS,
    DOCTOR,
];

/// An invalid variable, or a failure to resolve one.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// A variable's value is invalid, or its name is misspelt.
    #[error(transparent)]
    Variable(#[from] VariableError),
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
    /// A variable has an invalid value or a misspelt name, or the machine's addresses cannot be listed.
    pub fn from_env() -> Result<Self, ConfigurationError> {
        check_names(ALL)?;
        let seed = variable(SEED)?;
        let adapter = AdapterConfig {
            cm: nichrome_hca::cm::CmOptions::default(),
            transport: variable(TRANSPORT)?.unwrap_or_default(),
            star: StarOptions {
                stateless: variable(STATELESS)?.unwrap_or_default(),
                connection_budget: variable(CONNECTION_BUDGET)?,
                authenticates: flag(AUTHENTICATE)?.unwrap_or(true),
                key_file: variable(KEY_FILE)?,
                report: print_lines,
            },
            iwarp: IwarpOptions {
                crc: flag(CRC)?.unwrap_or(false),
                report: print_lines,
                ..IwarpOptions::default()
            },
            place: place()?,
            mtu: variable::<PayloadBytes>(MTU)?.map(|PayloadBytes(mtu)| mtu),
            reception: if flag(PACKETS)?.unwrap_or(false) { Reception::Packets } else { Reception::Socket },
            local: variable::<LocalPath>(LOCAL)?.unwrap_or_default(),
            faults: faults(seed)?,
            capture: variable::<String>(CAPTURE)?.map(|name| of_process(&name, process::id())),
            seed,
        };
        Ok(Self { adapter, prints_stats: flag(STATS)?.unwrap_or(false) })
    }
}

/// Returns the device's transport; the default if the variable has no valid value.
pub(crate) fn transport() -> Transport {
    variable(TRANSPORT).ok().flatten().unwrap_or_default()
}

/// Returns true if the device's transport is iWARP.
pub(crate) fn is_iwarp() -> bool {
    transport() == Transport::Iwarp
}

/// Returns the path of a process's own file: the name with the process ID in place of `%p`.
fn of_process(name: &str, process: u32) -> PathBuf {
    name.replace("%p", &process.to_string()).into()
}

fn place() -> Result<Place, ConfigurationError> {
    if let Some(ip) = variable(IP)? {
        return Ok(Place::Address(ip));
    }
    let Some(name) = variable::<InterfaceName>(INTERFACE)? else { return Ok(Place::Loopback) };
    let found = interface_address(name).map_err(|error| ConfigurationError::Addresses(error.into()))?;
    let none = || VariableError::Value {
        name: INTERFACE,
        value: name.to_string(),
        reason: "this machine has no such interface with an address".to_owned(),
    };
    Ok(Place::Address(found.ok_or_else(none)?))
}

/// Returns the address of `NICHROME_IP` or `NICHROME_IFACE`; `None` if neither is set or the interface has no
/// address.
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
        None => interface_address(text(interface)?.parse().ok()?).ok()?,
    }
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
fn set<T>(field: &mut T, name: &'static str) -> Result<(), VariableError>
where
    T: FromStr<Err: Display>,
{
    if let Some(value) = variable(name)? {
        *field = value;
    }
    Ok(())
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
