//! Options common to `nichrome rdma bw`, `lat`, `connect` and `pingpong`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use nichrome_hca::{
    Adapter, AdapterConfig, Faults, IwarpOptions, LocalPath, OpenError, Place, Reception, StarAddressError,
    StarOptions, Stateless, Transport,
};
use nichrome_port::InterfaceName;
use nichrome_port::udp::interface_address;
use nichrome_rdma::PathMtu;
use nichrome_wan::Impairments;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::distinct::Distinct;
use crate::failure;
use crate::impairment_options::ImpairmentOptions;
use crate::named_values::named_values;
use crate::number;

/// The peer, the adapter's configuration and the faults.
#[derive(Args, Clone, Debug)]
pub(super) struct Options {
    /// The server's host name or address; without it this end is the server.
    #[arg(value_name = "SERVER")]
    pub(super) server: Option<String>,
    /// The adapter's address, one of this machine's. By default the local address of the TCP connection or,
    /// on loopback, a free address in 127.0.0.0/8.
    #[arg(long, value_name = "ADDRESS", value_parser = device_address)]
    ip: Option<IpAddr>,
    /// The interface whose address the adapter takes.
    #[arg(long, value_name = "IFACE", conflicts_with = "ip")]
    iface: Option<InterfaceName>,
    /// The server's TCP port, over which the two ends exchange parameters.
    #[arg(long, value_name = "PORT", default_value_t = 18_515, value_parser = number::whole(0..=u16::MAX))]
    pub(super) port: u16,
    /// Maximum payload of a packet: 256, 512, 1024, 2048 or 4096. By default the largest that fits the
    /// interface; with pingpong 1024.
    #[arg(long, value_name = "BYTES", value_parser = path_mtu)]
    pub(super) path_mtu: Option<PathMtu>,
    /// The transport: roce, star, where one side of a connection keeps no state, or iwarp, over TCP.
    #[arg(
        long, value_name = "NAME", default_value = "roce",
        value_parser = named_values(Transport::ALL.map(Transport::name), Transport::from_str), hide_possible_values = true
    )]
    transport: Transport,
    /// With --transport star, the side that keeps no state: self, peer, or auto (a side whose budget is used
    /// up).
    #[arg(
        long, value_name = "SIDE", default_value = "auto",
        value_parser = named_values(Stateless::ALL.map(Stateless::name), Stateless::from_str), hide_possible_values = true
    )]
    stateless: Stateless,
    /// With --transport star, the maximum number of connections whose state this side keeps; it is
    /// stateless for further ones.
    #[arg(long, value_name = "NUMBER", value_parser = number::whole(0..=usize::MAX))]
    connection_budget: Option<usize>,
    /// With --transport star, the file with the key that protects connection set-up, the same at both sides:
    /// at least 32 bytes, not accessible to other users. Required unless the address is a loopback address.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// With --transport star, do not authenticate packets where this side is stateless: on loopback addresses
    /// only, where every process can then read and write registered memory.
    #[arg(long)]
    no_authenticate: bool,
    /// With --transport iwarp, request CRC-32C in every FPDU. It is used if either side requests it.
    #[arg(long)]
    crc: bool,
    /// Receive packets from the interfaces (AF_PACKET) instead of a UDP socket, to see the IPv4
    /// identification, which the ICRC covers. Needs CAP_NET_RAW.
    #[arg(long)]
    packets: bool,
    /// How packets reach other processes of this user on this machine: sockets, which use the kernel's
    /// network, where tcpdump and tc see them; or memory, which is faster and which both processes must
    /// choose.
    #[arg(
        long, value_name = "PATH", default_value = "sockets",
        value_parser = named_values(LocalPath::ALL.map(LocalPath::name), LocalPath::from_str), hide_possible_values = true
    )]
    local: LocalPath,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub(super) json: bool,
    /// Record every packet in a pcapng file; - for standard output, with the result on standard error.
    #[arg(long, value_name = "FILE.pcapng")]
    pub(super) capture: Option<PathBuf>,
    /// Seed of the impairments, memory keys, queue pair numbers and packet numbers. Anyone who knows the seed
    /// can guess the keys. By default random.
    #[arg(long, value_name = "NUMBER", value_parser = number::seed)]
    seed: Option<u64>,
    #[command(flatten)]
    impairments: ImpairmentOptions,
}

/// Returns the address of an interface that the user has named.
pub(super) fn address_of(interface: InterfaceName) -> anyhow::Result<IpAddr> {
    let found = interface_address(interface).context("cannot list this machine's addresses")?;
    found.with_context(|| format!("{interface} has no address ('ip address' lists them)"))
}

/// Parses the address of a device.
pub(super) fn device_address(text: &str) -> Result<IpAddr, String> {
    match text.parse() {
        Ok(IpAddr::V6(address)) if address.is_unicast_link_local() => {
            Err("no device can have a link-local address ('nichrome rdma devices' lists the others)".into())
        }
        Ok(address) => Ok(address),
        Err(_) => Err("an address is one of IPv4 or IPv6, such as 192.0.2.7 or 2001:db8::7".into()),
    }
}

fn path_mtu(text: &str) -> Result<PathMtu, String> {
    let bytes: Option<usize> = text.parse().ok();
    let found = PathMtu::ALL.into_iter().find(|mtu| Some(mtu.bytes()) == bytes);
    found.ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096".to_owned())
}

/// Fails if a file cannot be written, or created in its folder; `-` is standard output. The file itself is
/// opened with the adapter, after the peer has connected.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writable = match path.exists() {
        true if path.is_dir() => Err(Errno::ISDIR),
        true => access(path, Access::WRITE_OK),
        // With the dot, the check fails if `folder` is no folder.
        false => access(folder.join("."), Access::WRITE_OK),
    };
    writable.map_err(io::Error::from).with_context(|| format!("cannot write {}", path.display()))
}

impl Options {
    /// Returns the address of --ip or --iface; `None` without either.
    pub(super) fn address(&self) -> anyhow::Result<Option<IpAddr>> {
        let Some(name) = self.iface else { return Ok(self.ip) };
        address_of(name).map(Some)
    }

    /// Returns the configuration of the adapter; `here` is the local address of the TCP connection.
    pub(super) fn adapter(&self, here: IpAddr) -> anyhow::Result<AdapterConfig> {
        let place = match self.address()? {
            Some(ip) => Place::Address(ip),
            // The server may have opened its device at ::1 by --ip.
            None if here == Ipv6Addr::LOCALHOST && !self.packets => Place::Address(here),
            None if here.is_loopback() => Place::Loopback,
            None => Place::Address(here),
        };
        let faults = self.impairments()?.map(|impairments| {
            let seed = self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
            Faults { impairments, seed }
        });
        let reception = if self.packets { Reception::Packets } else { Reception::Socket };
        let capture = self.capture.clone();
        let star = StarOptions {
            stateless: self.stateless,
            connection_budget: self.connection_budget,
            authenticates: !self.no_authenticate,
            key_file: self.key_file.clone(),
            report: |why| failure::notice(format_args!("nichrome: {why}")),
        };
        Ok(AdapterConfig {
            cm: nichrome_hca::cm::CmOptions::default(),
            transport: self.transport,
            star,
            iwarp: IwarpOptions {
                crc: self.crc,
                report: |why| failure::notice(format_args!("nichrome: {why}")),
                ..IwarpOptions::default()
            },
            place,
            mtu: self.path_mtu,
            reception,
            local: self.local,
            faults,
            capture,
            seed: self.seed,
        })
    }

    /// Fails for options that the adapter will refuse, before this end waits for its peer.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.check_transport()?;
        if self.port == 0 && self.server.is_some() {
            return Err(failure::usage("a client needs the port on which its server waits, not 0"));
        }
        let mut files = Distinct::default();
        let (settings, impairments) = self.impairments.impairments(&mut files)?;
        settings.warn(&impairments);
        self.key_file.iter().try_for_each(|path| files.read("--key-file", path))?;
        files.write([("--capture", self.capture.as_deref())])?;
        self.capture.as_deref().map(check_writable).transpose()?;
        // Without --ip and --iface, the adapter's address is known only after the peer has connected: checks
        // the options with a loopback address.
        let config = self.adapter(IpAddr::from([127, 0, 0, 1]))?;
        Adapter::check(&config).map_err(|error| match error {
            OpenError::Star(StarAddressError::KeyFile(_)) => error.into(),
            _ => failure::as_usage(error),
        })
    }

    /// Fails for options of another transport.
    fn check_transport(&self) -> anyhow::Result<()> {
        let given = [
            ("--stateless", self.stateless != Stateless::Automatic, Transport::Star),
            ("--connection-budget", self.connection_budget.is_some(), Transport::Star),
            ("--key-file", self.key_file.is_some(), Transport::Star),
            ("--no-authenticate", self.no_authenticate, Transport::Star),
            ("--crc", self.crc, Transport::Iwarp),
        ];
        match given.into_iter().find(|(_, is_given, transport)| *is_given && *transport != self.transport) {
            Some((option, _, transport)) => {
                Err(failure::usage(format!("{option} needs --transport {}", transport.name())))
            }
            None => Ok(()),
        }
    }

    /// Returns the impairments of datagrams in each direction; `None` if no option asks for any.
    pub(super) fn impairments(&self) -> anyhow::Result<Option<Impairments>> {
        let (settings, [impairments, _]) = self.impairments.impairments(&mut Distinct::default())?;
        Ok((!settings.is_empty()).then_some(impairments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_an_address_without_scope() {
        for address in ["192.0.2.7", "2001:db8::7"] {
            assert_eq!(device_address(address), Ok(address.parse().unwrap()));
        }
        assert!(device_address("fe80::7").unwrap_err().contains("link-local"));
        assert!(device_address("eth0").unwrap_err().contains("such as 192.0.2.7"));
    }
}
