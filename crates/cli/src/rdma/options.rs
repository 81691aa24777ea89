//! What all commands of `nichrome rdma` understand.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use nichrome_hca::{AdapterConfig, Faults, Place, Reception, StarOptions, Stateless, Transport};
use nichrome_port::InterfaceName;
use nichrome_port::udp::local_addresses;
use nichrome_rdma::PathMtu;
use nichrome_wan::Impairments;

use crate::failure;
use crate::impairment_options::ImpairmentOptions;

/// Where the adapter is, and what happens to its datagrams.
#[derive(Args, Clone, Debug)]
pub(super) struct Options {
    /// The server; without it this is the server.
    #[arg(value_name = "SERVER")]
    pub(super) server: Option<String>,
    /// The adapter's address, one of this machine's. By default the one that the TCP connection has, or an address of
    /// its own in 127.0.0.0/8 where that is on the loopback interface.
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<IpAddr>,
    /// The interface whose address is the adapter's.
    #[arg(long, value_name = "IFACE", conflicts_with = "ip")]
    iface: Option<InterfaceName>,
    /// The TCP port at which server and client meet.
    #[arg(long, value_name = "PORT", default_value_t = 18_515)]
    pub(super) port: u16,
    /// Payload of a packet at most: 256, 512, 1024, 2048 or 4096. By default what fits the interface.
    #[arg(long, value_name = "BYTES", value_parser = path_mtu)]
    pub(super) path_mtu: Option<PathMtu>,
    /// What the adapter speaks: roce, or star, where one side of a connection keeps no state.
    #[arg(long, value_name = "NAME", default_value = "roce")]
    transport: Transport,
    /// With --transport star, which side keeps no state: self, peer, or auto for the one whose budget is used up.
    #[arg(long, value_name = "SIDE", default_value = "auto")]
    stateless: Stateless,
    /// With --transport star, connections whose state is kept here; beyond it, new ones are stateless here.
    #[arg(long, value_name = "NUMBER")]
    connection_budget: Option<usize>,
    /// With --transport star, packets to this side, where it is stateless, must be authenticated.
    #[arg(long)]
    authenticate: bool,
    /// Receive packets from the interfaces instead of a socket: the IPv4 identification, which the ICRC covers, is seen.
    /// Needs CAP_NET_RAW.
    #[arg(long)]
    packets: bool,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub(super) json: bool,
    /// Record every packet.
    #[arg(long, value_name = "FILE.pcapng")]
    capture: Option<PathBuf>,
    /// What all random choices come from: those of the impairments, memory keys, queue pair and packet numbers. Whoever
    /// knows it can guess the keys. Without it they are different every time.
    #[arg(long, value_name = "NUMBER", value_parser = crate::number::seed, allow_negative_numbers = true)]
    seed: Option<u64>,
    #[command(flatten)]
    impairments: ImpairmentOptions,
}

fn path_mtu(text: &str) -> Result<PathMtu, String> {
    let bytes: Option<usize> = text.parse().ok();
    let found = PathMtu::ALL.into_iter().find(|mtu| Some(mtu.bytes()) == bytes);
    found.ok_or_else(|| "a path MTU is 256, 512, 1024, 2048 or 4096".to_owned())
}

impl Options {
    /// The address that the adapter is to have; `None` where none was asked for.
    pub(super) fn address(&self) -> anyhow::Result<Option<IpAddr>> {
        let Some(name) = self.iface else { return Ok(self.ip) };
        let addresses = local_addresses().context("cannot list this machine's addresses")?;
        // IPv4 first, as the system has them: link-local IPv6 addresses would need a scope.
        let found = addresses.iter().filter(|(interface, _)| *interface == name).map(|(_, address)| *address);
        let found = found.min_by_key(IpAddr::is_ipv6);
        found.with_context(|| format!("{name} has no address ('ip address' lists them)")).map(Some)
    }

    /// The adapter to open, where the TCP connection has the address `here`.
    pub(super) fn adapter(&self, here: IpAddr) -> anyhow::Result<AdapterConfig> {
        let place = match self.address()? {
            Some(ip) => Place::Address(ip),
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
            authenticates: self.authenticate,
            report: |why| eprintln!("nichrome: {why}"),
        };
        Ok(AdapterConfig {
            transport: self.transport,
            star,
            place,
            mtu: self.path_mtu,
            reception,
            faults,
            capture,
            seed: self.seed,
        })
    }

    /// What happens to datagrams; `None` where nothing does.
    pub(super) fn impairments(&self) -> anyhow::Result<Option<Impairments>> {
        let asked = self.impairments.asked()?;
        if asked.is_empty() {
            return Ok(None);
        }
        let mut both = [Impairments::default(), Impairments::default()];
        asked.apply(&mut both).map_err(|error| failure::usage(format!("{error:#}")))?;
        let [impairments, _] = both;
        Ok(Some(impairments))
    }
}
