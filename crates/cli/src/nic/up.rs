//! `nichrome nic up`: runs a card from its creation until everything is restored.

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, Command, FromArgMatches};
use nichrome_lro::{Config, Hold, Medium, Profile, ProfileConfig, UnknownProfile};
use nichrome_nic::{Card, CardConfig};
use nichrome_port::{Interface, InterfaceName, Netlink};
use rustix::thread::{CapabilitySet, capabilities};

use super::captures::{CaptureOptions, Captures};
use super::claim::Claim;
use super::host_interface::HostInterface;
use super::metrics;
use super::report::{Identity, Reporter};
use super::session::{Ended, Session, Watched};
use super::text::Text;
use super::wire::{self, Backend, Wire};
use super::{config_file, control, forwarding, mark};
use crate::control::ControlSocket;
use crate::distinct::Distinct;
use crate::engine_options::{EngineOptions, UdpByDefault, default_profile_config};
use crate::failure;
use crate::http::HttpServer;
use crate::named_values::named_values;
use crate::number;
use crate::shared_device::SharedDevice;

/// Number of words before the options: `nichrome nic up`.
const WORDS: usize = 3;

/// Put a card between an interface and the kernel, until Ctrl-C or 'nichrome nic down'.
#[derive(Args)]
#[command(args_override_self = true)]
pub(crate) struct Up {
    /// The interface to receive from and send through. It must be up and have no addresses: assign them to
    /// the host interface.
    #[arg(long, value_name = "IFACE", required_unless_present = "config")]
    wire: Option<InterfaceName>,
    /// The interface for the kernel, with the wire's MAC address and MTU.
    #[arg(long, value_name = "NAME", required_unless_present = "config")]
    host: Option<InterfaceName>,
    /// The engine: none, gro (lossless), netfpga (one flow at a time) or npu (reorders).
    #[arg(
        long, value_name = "PROFILE", default_value = "gro",
        value_parser = named_values(Offload::names(), Offload::from_str), hide_possible_values = true
    )]
    profile: Offload,
    #[command(flatten)]
    engine: EngineOptions,
    /// Number of workers, each with a queue of the wire [default: with xdp the receive queues of IFACE,
    /// otherwise 1].
    #[arg(long, value_name = "N", value_parser = number::whole(QUEUES))]
    queues: Option<u16>,
    /// Number of queues of the host interface: one per worker, or 1 that they share [default: as --queues].
    #[arg(long, value_name = "N", value_parser = number::whole(QUEUES))]
    host_queues: Option<u16>,
    /// How to exchange frames with the wire.
    #[arg(long, value_enum, value_name = "BACKEND", default_value_t = Backend::Auto)]
    backend: Backend,
    /// Workers never sleep: lower latency at the cost of a CPU each.
    #[arg(long)]
    busy_poll: bool,
    /// Deliver lossy aggregates even if the host forwards packets.
    #[arg(long)]
    force: bool,
    /// A TOML file with these options by the same names; the command line takes precedence.
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Serve the counters to Prometheus at http://ADDR:PORT/metrics.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    capture: CaptureOptions,
}

/// The allowed numbers of queues: the limit of TAP devices and fanout groups.
const QUEUES: RangeInclusive<u16> = 1..=256;

/// The receive offload of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offload(Option<Profile>);

impl FromStr for Offload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.parse() {
            Ok(profile) => Ok(Self(Some(profile))),
            Err(_) if name == "none" => Ok(Self(None)),
            Err(error @ UnknownProfile { .. }) => Err(format!("{error}, or none at all")),
        }
    }
}

impl Offload {
    fn names() -> impl Iterator<Item = &'static str> {
        Profile::ALL.into_iter().map(Some).chain([None]).map(|profile| Self(profile).name())
    }

    const fn name(self) -> &'static str {
        match self.0 {
            Some(profile) => profile.name(),
            None => "none",
        }
    }

    /// Returns the profile's name if its aggregates do not preserve the original packets.
    fn lossy(self) -> Option<&'static str> {
        matches!(self.0, Some(Profile::Netfpga | Profile::Npu)).then(|| self.name())
    }
}

impl Up {
    /// Runs the command.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.config {
            Some(file) => {
                let up = Self::from_file(file)?;
                let mut files = Distinct::default();
                files.read("--config", file)?;
                up.bring_up(files)
            }
            None => self.bring_up(Distinct::default()),
        }
    }

    /// Combines the file's options with those of the command line, which take precedence.
    fn from_file(file: &Path) -> anyhow::Result<Self> {
        let command = Self::augment_args(Command::new("nichrome nic up")).no_binary_name(true);
        let given = config_file::arguments(file, &command)?;
        let all = given.into_iter().chain(env::args_os().skip(WORDS));
        let parsed = command.try_get_matches_from(all).and_then(|matches| Self::from_arg_matches(&matches));
        // The command line by itself was valid, so the error is one of the file.
        parsed.map_err(|error| failure::usage(format!("{}: {}", file.display(), failure::one_line(&error))))
    }

    /// Returns the engine's configuration, if there is an engine.
    fn profile_config(&self) -> anyhow::Result<Option<ProfileConfig>> {
        let Some(profile) = self.profile.0 else {
            self.engine.refuse_all()?;
            return Ok(None);
        };
        let default = match profile {
            Profile::Gro => ProfileConfig::Gro(Hold::Batch),
            _ => default_profile_config(profile),
        };
        self.engine.profile_config(default).map(Some)
    }

    /// Runs the card; `files` are the files that the command has read.
    fn bring_up(&self, mut files: Distinct) -> anyhow::Result<ExitCode> {
        let (Some(wire), Some(host)) = (self.wire, self.host) else {
            return Err(failure::usage(
                "the file names no wire or no host, and neither does the command line",
            ));
        };
        let profile = self.profile_config()?;
        if wire == host {
            return Err(failure::usage(format!(
                "--wire and --host must be different interfaces, and both are {wire}"
            )));
        }
        files.write(self.capture.outputs())?;
        check_capabilities()?;
        let netlink = Netlink::open()?;
        let wire = self.name_of_wire(&netlink, wire)?;
        // Must precede reading the interface's settings, which this may restore.
        let mut claim = Claim::take(wire, host)?;
        let (interface, queues) = self.open_wire(&netlink, wire)?;
        let host_interface = self.make_host(&netlink, host, &interface, self.host_queues(&queues)?)?;
        mark::set(&netlink, &interface, &host_interface.interface)?;
        let captures = Captures::create(&self.capture, wire.as_str(), host.as_str())?;
        let metrics = self.metrics.map(|address| HttpServer::listen(address, "--metrics")).transpose()?;
        let session = Session::begin()?;
        if queues.is_shared() {
            claim.hide(&netlink, &interface)?;
        }
        netlink.set_up(&host_interface.interface)?;
        let stays = self.backend != Backend::Tap;
        let watched =
            Watched { wire: stays.then(|| interface.clone()), mtu: interface.mtu, lossy: self.lossy() };
        warn_of_addresses(&netlink, &interface, host)?;
        warn_of_controller(&interface);
        let identity = Identity {
            wire: wire.to_string(),
            host: host.to_string(),
            backend: queues.name(),
            profile: self.profile.name().to_owned(),
            host_queues: host_interface.queues.len(),
            pid: process::id(),
        };
        let parts = CardParts { identity, queues, host_interface, captures, metrics };
        let (ended, socket) = self.serve(parts, profile, &session, &watched)?;
        // Must precede dropping the socket: 'nichrome nic down' waits for its removal.
        drop(claim);
        drop(socket);
        ended.map(|()| ExitCode::SUCCESS)
    }

    /// Runs a card until its session ends. Returns the result with the control socket.
    fn serve(
        &self,
        parts: CardParts,
        profile: Option<ProfileConfig>,
        session: &Session,
        watched: &Watched,
    ) -> anyhow::Result<(anyhow::Result<()>, Option<ControlSocket>)> {
        let CardParts { identity, queues, host_interface, captures, metrics } = parts;
        let Identity { wire, host, backend, profile: name, host_queues, .. } = &identity;
        let workers = queues.queues();
        let up = format!(
            "{host} is up on {wire}: backend {backend}, queues {workers}, host queues {host_queues}, profile {name}"
        );
        let between = format!("the card between {wire} and {host}");
        let devices: Vec<SharedDevice> =
            host_interface.queues.iter().map(|queue| Arc::clone(queue) as SharedDevice).collect();
        let config = self.card_config(profile, host_interface.udp_by_default());
        let (card, attached) =
            queues.start(&devices, &config, || captures.observer(), session.card_ended())?;
        let reporter = Reporter::new(identity, card.remote(), captures.missed());
        let socket = control::open(host_interface.interface.name, reporter.clone(), session.sender())
            .inspect_err(|error| failure::warn(format_args!("'nichrome nic stats' will not work: {error:#}")))
            .ok();
        if let Some(server) = metrics {
            metrics::serve(server, reporter.clone());
        }
        failure::notice(format_args!("nichrome: {up}"));
        let ended = session.wait_for_the_end(watched, &host_interface);
        let stopped = stop(card, &reporter).context(between);
        drop(attached);
        captures.finish();
        let ended = match ended {
            Ok(Ended::Requested) => stopped,
            Ok(Ended::CardFailed) => stopped.and(Err(anyhow!("the card has stopped unexpectedly"))),
            Err(error) => Err(error),
        };
        Ok((ended, socket))
    }

    /// Creates the host interface, unless the profile conflicts with forwarding.
    fn make_host(
        &self,
        netlink: &Netlink,
        host: InterfaceName,
        wire: &Interface,
        queues: usize,
    ) -> anyhow::Result<HostInterface> {
        // A TAP wire's MAC address belongs to its kernel end, which is another host.
        let mac = wire.mac.filter(|_| self.backend != Backend::Tap);
        let made = HostInterface::new(netlink, host, queues, mac, wire.mtu)?;
        if let Some(profile) = self.lossy()
            && forwarding::is_enabled(host)
        {
            bail!("{} (--force does it anyway)", forwarding::why_not_forwarding(host, profile));
        }
        Ok(made)
    }

    /// Returns the profile's name if it conflicts with forwarding.
    fn lossy(&self) -> Option<&'static str> {
        self.profile.lossy().filter(|_| !self.force)
    }

    /// Returns the wire's name, by which cards claim it; `given` may be an alternative name.
    fn name_of_wire(&self, netlink: &Netlink, given: InterfaceName) -> anyhow::Result<InterfaceName> {
        // A TAP wire does not exist yet: the card creates it.
        if self.backend == Backend::Tap { Ok(given) } else { Ok(netlink.interface(given)?.name) }
    }

    fn open_wire(&self, netlink: &Netlink, name: InterfaceName) -> anyhow::Result<(Interface, Wire)> {
        if self.backend == Backend::Tap {
            return wire::make(netlink, name, self.queues.map_or(1, usize::from));
        }
        let interface = wire::find(netlink, name)?;
        mark::check(netlink, &interface)?;
        let queues = Wire::open(self.backend, &interface, self.queues)?;
        Ok((interface, queues))
    }

    /// Returns the number of host queues.
    fn host_queues(&self, wire: &Wire) -> anyhow::Result<usize> {
        let workers = wire.queues();
        let queues = self.host_queues.map_or(workers, usize::from);
        if queues != 1 && queues != workers {
            let (given, one) = (format!("--host-queues {queues}"), "1, or as many as there are workers");
            return Err(failure::usage(format!("{given}: it must be {one}, which is {workers} here")));
        }
        if queues < workers && self.engine.acknowledges() {
            let why = "each worker must see what the host sends on its connections";
            return Err(failure::usage(format!("--active-ack needs --host-queues {workers}: {why}")));
        }
        Ok(queues)
    }

    fn card_config(&self, profile: Option<ProfileConfig>, udp: UdpByDefault) -> CardConfig {
        // A random seed: nobody can choose connections that collide in the table.
        let seed = RandomState::new().build_hasher().finish();
        CardConfig {
            name: "nic",
            engine: Config { seed, ..self.engine.config(Medium::Ethernet, udp) },
            profile,
            busy_poll: self.busy_poll,
        }
    }
}

/// The parts of a card.
struct CardParts {
    identity: Identity,
    queues: Wire,
    host_interface: HostInterface,
    captures: Captures,
    metrics: Option<HttpServer>,
}

/// Stops a card and prints its counters.
fn stop(card: Card, reporter: &Reporter) -> anyhow::Result<()> {
    let stats = card.stop()?;
    failure::notice(format_args!("{}", Text(&reporter.of(&stats)).to_string().trim_end()));
    Ok(())
}

/// Warns of addresses on the wire: the kernel looks for their neighbours there, not behind the card.
fn warn_of_addresses(netlink: &Netlink, wire: &Interface, host: InterfaceName) -> anyhow::Result<()> {
    let addresses: Vec<_> = netlink.addresses(wire)?.iter().map(IpAddr::to_string).collect();
    if !addresses.is_empty() {
        let (name, addresses) = (wire.name, addresses.join(", "));
        failure::warn(format_args!(
            "{name} has addresses of its own ({addresses}), so the kernel's packets bypass the card: \
             assign them to {host} instead ('ip address flush dev {name}' removes them)"
        ));
    }
    Ok(())
}

/// Warns of a bridge or bond, which also forwards the frames of its ports past the card.
fn warn_of_controller(wire: &Interface) {
    if let Some(controller) = wire.controller {
        let name = wire.name;
        let named = InterfaceName::of_index(controller);
        let controller = named.map_or_else(|_| format!("interface {controller}"), |name| name.to_string());
        failure::warn(format_args!(
            "{name} is a port of {controller}, so its frames bypass the card: \
             'ip link set {name} nomaster' removes it"
        ));
    }
}

fn check_capabilities() -> anyhow::Result<()> {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let ours = capabilities(None).context("cannot read the capabilities of this process")?.effective;
    ensure!(
        ours.contains(needed),
        "a card needs CAP_NET_ADMIN and CAP_NET_RAW: run this with sudo, \
         or give them to the program ('setcap cap_net_admin,cap_net_raw+ep')"
    );
    Ok(())
}
