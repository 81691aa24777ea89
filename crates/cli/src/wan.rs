//! `nichrome wan`: a wide-area path on one machine.

mod control;
mod direction;
mod exec;
mod in_force;
mod live_path;
mod plot;
mod processes;
mod programs;
mod recorder;
mod remote;
mod report;
mod session;
mod summary;
mod veth_hosts;
mod web;

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use clap::{Args, Subcommand};
pub(crate) use nichrome_lab::Host;
use nichrome_port::{InterfaceName, Netlink, Offloads, PacketSocket, gain_network_admin};
use nichrome_wan::Impairments;
use nichrome_wire::MacAddr;

use self::control::{Controlled, HostNamespace, Unread};
use self::exec::Exec;
pub(crate) use self::live_path::{LivePath, Remote, Setup};
use self::programs::{Output, Program, StandardOutput};
use self::recorder::Recording;
use self::remote::{Set, Show};
use self::session::Session;
use self::summary::Summary;
pub(crate) use self::veth_hosts::veth_hosts;
use self::web::WebPage;
use crate::control::ControlSocket;
use crate::distinct::Distinct;
use crate::impairment_options::ImpairmentOptions;
use crate::links::{Link, User};
use crate::picture_file::{self, PictureFile};
use crate::shared_device::SharedDevice;
use crate::side::Side;
use crate::{failure, number};

const EXAMPLES: &str = "\
Examples:
  nichrome wan --delay 40ms --loss 1% --left 'iperf3 -s -1' --right 'iperf3 -c $PEER'
  nichrome wan --rate 10mbit --aqm codel --delay 20ms -- ping -c 3 '$PEER6'
  nichrome wan --delay 300ms --shell                      a shell on the left host
  nichrome wan --config dsl.toml --between eth1 eth2      in line between two real interfaces (root)
  nichrome wan set --loss 5%                              while it runs
  nichrome wan --web --delay 20ms --shell                 the same by sliders, in a browser

Environment variables for programs: $PEER and $PEER6 are the other host's addresses, $SELF and $SELF6 \
their own. The program on the right starts once the one on the left listens, has ended, or has waited \
for something else for half a second; when it ends, the other is stopped.";

/// A wide-area path on one machine, between two hosts without root, or between two interfaces.
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Wan {
    #[command(subcommand)]
    remote: Option<RemoteCommand>,
    #[command(flatten)]
    impairments: ImpairmentOptions,
    /// The command for the left host, run by the shell.
    #[arg(long, value_name = "COMMAND", help_heading = "Hosts")]
    left: Option<String>,
    /// The command for the right host; its exit status is this command's.
    #[arg(long, value_name = "COMMAND", help_heading = "Hosts", conflicts_with_all = ["command", "between"])]
    right: Option<String>,
    /// Open a shell on the left host; all programs end with it. Without a right command, its exit status is
    /// this command's.
    #[arg(long, help_heading = "Hosts", conflicts_with_all = ["left", "between"])]
    shell: bool,
    /// MTU of the hosts' interfaces. Below 1280 there is no IPv6.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = number::bytes(576..=65_521_u32), help_heading = "Hosts", conflicts_with = "between")]
    interface_mtu: u32,
    /// Connect two interfaces of this machine, which are restored at the end. Needs root or CAP_NET_RAW and
    /// CAP_NET_ADMIN. The interfaces should have no addresses, or this machine would answer too. If an
    /// interface goes down, the path waits for it; if one is deleted, the path ends.
    #[arg(long, num_args = 2, value_names = ["IFACE", "IFACE"], help_heading = "Interfaces", conflicts_with_all = ["left", "command"])]
    between: Option<Vec<InterfaceName>>,
    /// Seed of all random choices; by default random.
    #[arg(long, value_name = "NUMBER", value_parser = number::seed, help_heading = "Results")]
    seed: Option<u64>,
    /// Record every packet at both ends, as interfaces left and right.
    #[arg(long, value_name = "FILE.pcapng", help_heading = "Results")]
    capture: Option<PathBuf>,
    /// Print the summary as one JSON object; the programs' output then goes to standard error.
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// Plot the measured delays, and the throughput over time, to this file, as SVG.
    #[arg(long, value_name = "FILE.svg", value_parser = picture_file::svg(), help_heading = "Results")]
    plot: Option<PathBuf>,
    /// Serve a page for a browser at this address or port, with sliders for the impairments and the path's
    /// current state. By default a free port of 127.0.0.1. Anyone who can reach the address can change the
    /// path; at other addresses than loopback only with the printed token.
    #[arg(
        long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "0", value_parser = web::address,
        help_heading = "Results",
    )]
    web: Option<SocketAddr>,
    /// Internal: a command without '--' before it, which is reported.
    #[arg(hide = true)]
    stray: Vec<OsString>,
    /// The program for the right host, at this terminal, and its arguments; $PEER and the other variables are
    /// replaced.
    #[arg(last = true, value_name = "COMMAND", help_heading = "Hosts")]
    command: Vec<OsString>,
}

#[derive(Subcommand)]
enum RemoteCommand {
    Set(Box<Set>),
    Show(Show),
    Exec(Exec),
}

impl Wan {
    /// Runs the command; returns the exit status of the program on the right.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.remote {
            Some(RemoteCommand::Set(set)) => return set.run().map(|()| ExitCode::SUCCESS),
            Some(RemoteCommand::Show(show)) => return show.run().map(|()| ExitCode::SUCCESS),
            Some(RemoteCommand::Exec(exec)) => return exec.run(),
            None => {}
        }
        let mut files = Distinct::default();
        let (settings, impairments) = self.impairments.impairments(&mut files)?;
        self.check()?;
        files.write([("--capture", self.capture.as_deref()), ("--plot", self.plot.as_deref())])?;
        settings.warn(&impairments);
        // Listens in the caller's network namespace, before this process enters one of its own.
        let web = self.web.map(WebPage::listen).transpose()?;
        match &self.between {
            Some(interfaces) => self.between(interfaces, impairments, web),
            None => self.hosts(impairments, web),
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        if let Some(first) = self.stray.first() {
            let words: Vec<_> = self.stray.iter().map(|word| word.to_string_lossy()).collect();
            let (first, command) = (first.to_string_lossy(), words.join(" "));
            let instead = format!(
                "a command goes behind two dashes, '-- {command}'; there are also set, show and exec"
            );
            return Err(failure::usage(format!("unknown command '{first}': {instead}")));
        }
        let something =
            self.between.is_some() || self.shell || self.right.is_some() || !self.command.is_empty();
        if !something {
            let needed =
                "nothing to do: give --right 'COMMAND', '-- COMMAND', --shell or --between IFACE IFACE";
            return Err(failure::usage(needed));
        }
        if let Some([first, second]) = self.between.as_deref()
            && first == second
        {
            return Err(failure::usage(format!("--between needs two interfaces, and got {first} twice")));
        }
        if self.capture.as_deref().is_some_and(|path| path.as_os_str() == "-") {
            return Err(failure::usage("--capture needs the name of a file"));
        }
        Ok(())
    }

    /// Creates two hosts and the path between them.
    fn hosts(&self, impairments: [Impairments; 2], web: Option<WebPage>) -> anyhow::Result<ExitCode> {
        // Requires a single-threaded process.
        gain_network_admin()?;
        let outputs = self.open()?;
        let host = |side| Host::new(side, self.interface_mtu, Offloads::All);
        let [left, right] = Side::BOTH;
        let hosts = Arc::new([host(left)?, host(right)?]);
        if let Err(why) = &hosts[0].ipv6 {
            failure::warn(format_args!("the hosts have IPv4 only: {why}"));
        }
        let devices = hosts.each_ref().map(|host| Arc::clone(&host.tap) as SharedDevice);
        let mut session = Session::begin()?;
        let namespaces = hosts.each_ref().map(HostNamespace::of).to_vec();
        let unread = {
            let hosts = Arc::clone(&hosts);
            move || {
                let [left, right] = hosts.each_ref().map(Host::counters);
                Ok([left?.send_dropped, right?.send_dropped])
            }
        };
        let handles = PathHandles { hosts: namespaces, unread: Arc::new(unread), web };
        let run = self.start(devices, impairments, &session, outputs, handles)?;
        if self.shell {
            failure::notice(format_args!(
                "a shell on the left host; $PEER and $PEER6 are the right one, 'exit' ends both"
            ));
        }
        let standard_output = if self.json { StandardOutput::Summary } else { StandardOutput::Programs };
        match session.run(&hosts, &self.programs(), standard_output) {
            Ok(status) => failure::status_of(status, self.finish(run)),
            Err(error) => {
                run.discard();
                Err(error)
            }
        }
    }

    /// Returns the programs for the left and right host.
    fn programs(&self) -> [Option<(Program, Output)>; 2] {
        let left = match &self.left {
            Some(line) => Some((Program::Line(line.clone()), Output::Labelled)),
            None => self.shell.then_some((Program::Shell, Output::Ours)),
        };
        let right = match &self.right {
            Some(line) => Some((Program::Line(line.clone()), Output::Labelled)),
            None if self.command.is_empty() => None,
            None => {
                let alone = self.left.is_none() && !self.shell;
                let output = if alone { Output::Ours } else { Output::Labelled };
                Some((Program::Exec(self.command.clone()), output))
            }
        };
        [left, right]
    }

    /// Runs the path between two interfaces until a signal.
    fn between(
        &self,
        interfaces: &[InterfaceName],
        impairments: [Impairments; 2],
        web: Option<WebPage>,
    ) -> anyhow::Result<ExitCode> {
        let outputs = self.open()?;
        let netlink = Netlink::open()?;
        let (mut sockets, mut links, mut indices) = (Vec::new(), Vec::new(), Vec::new());
        for name in interfaces {
            let interface = netlink.interface(*name)?;
            // Both names may be of one interface.
            anyhow::ensure!(
                !indices.contains(&interface.index),
                "--between needs two interfaces, and {} and {name} are the same",
                interfaces[0]
            );
            indices.push(interface.index);
            let ethernet = interface.mac.is_some_and(|mac| mac != MacAddr::default());
            anyhow::ensure!(ethernet, "{name} is not an Ethernet interface");
            anyhow::ensure!(interface.up, "{name} is down: 'ip link set {name} up' sets it up");
            sockets.push(Arc::new(PacketSocket::open(&interface)?));
            links.push(Link::new(interface, User::PATH));
        }
        let (Ok(sockets), Ok(links)) =
            (<[Arc<PacketSocket>; 2]>::try_from(sockets), <[Link; 2]>::try_from(links))
        else {
            return Err(failure::usage("--between needs two interfaces"));
        };
        let devices = sockets.each_ref().map(|socket| Arc::clone(socket) as SharedDevice);
        let mut session = Session::begin()?;
        // An interface that is gone has no counter.
        let unread = move || Ok(sockets.each_ref().map(|socket| socket.dropped().unwrap_or(0)));
        let handles = PathHandles { hosts: Vec::new(), unread: Arc::new(unread), web };
        let run = self.start(devices, impairments, &session, outputs, handles)?;
        failure::notice(format_args!(
            "between {} (left) and {} (right) until Ctrl-C",
            interfaces[0], interfaces[1]
        ));
        let ended = session.wait_for_the_end(links);
        match (ended, self.finish(run)) {
            (Ok(status), finished) => failure::status_of(status, finished),
            (Err(error), finished) => {
                // A direction may have failed because of the same interface.
                if let Err(other) = finished {
                    failure::warn(format_args!("{other:#}"));
                }
                Err(error)
            }
        }
    }

    /// Opens the files that the command writes. Must precede the session, so that signals still end a process
    /// that waits for the reader of a pipe.
    fn open(&self) -> anyhow::Result<Outputs> {
        let recording = self.capture.as_deref().map(Recording::create).transpose()?;
        let plot = self.plot.as_deref().map(PictureFile::create).transpose()?;
        Ok(Outputs { recording, plot })
    }

    fn start(
        &self,
        devices: [SharedDevice; 2],
        impairments: [Impairments; 2],
        session: &Session,
        Outputs { recording, plot }: Outputs,
        PathHandles { hosts, unread, web }: PathHandles,
    ) -> anyhow::Result<Run> {
        let seed = self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 32);
        let setup = Setup { devices, impairments: &impairments, seed, recording: recording.as_ref() };
        let path = LivePath::start(&setup, session.path_ended())?;
        let controlled =
            Controlled { remote: path.remote(), impairments, seed, hosts, unread: Arc::clone(&unread) };
        let controlled = Arc::new(Mutex::new(controlled));
        if let Some(web) = web {
            web.serve(Arc::clone(&controlled), path.remote(), Arc::clone(&unread))?;
        }
        let control = Controlled::open(controlled)
            .map_err(|error| failure::warn(format_args!("'nichrome wan set' will not work: {error:#}")))
            .ok();
        Ok(Run { path, recording, plot, seed, unread, _control: control })
    }

    /// Stops the path, prints and plots its results.
    fn finish(&self, run: Run) -> anyhow::Result<()> {
        let stopped = run.path.stop();
        // Also writes the packets before an error of the path.
        let recorded = run.recording.map_or(Ok(()), Recording::finish);
        let reports = match (stopped, &recorded) {
            (Err(error), Err(lost)) => {
                failure::warn(format_args!("{lost}"));
                return Err(error);
            }
            (stopped, _) => stopped?,
        };
        let summary = Summary::new(run.seed, &reports, (run.unread)()?);
        let printed = if self.json {
            let json = serde_json::to_string_pretty(&summary)?;
            writeln!(io::stdout(), "{json}").context("cannot print the summary")
        } else {
            failure::notice(format_args!("\n{summary}"));
            Ok(())
        };
        let drawn = run.plot.map_or(Ok(()), |file| file.finish(&plot::draw(&reports)?));
        recorded?;
        drawn?;
        printed
    }
}

/// The files that are written.
struct Outputs {
    recording: Option<Recording>,
    plot: Option<PictureFile>,
}

/// The hosts of a running path and its web page.
struct PathHandles {
    hosts: Vec<HostNamespace>,
    unread: Unread,
    web: Option<WebPage>,
}

/// A running path with its capture and control.
struct Run {
    path: LivePath,
    recording: Option<Recording>,
    plot: Option<PictureFile>,
    seed: u64,
    unread: Unread,
    _control: Option<ControlSocket>,
}

impl Run {
    /// Stops the path without a summary, after another error. Also writes the packets before it to the
    /// capture.
    fn discard(self) {
        let stopped = self.path.stop().err();
        let recorded = self.recording.and_then(|recording| recording.finish().err());
        for error in stopped.into_iter().chain(recorded.map(Into::into)) {
            failure::warn(format_args!("{error:#}"));
        }
    }
}
