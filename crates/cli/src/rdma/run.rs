//! `nichrome rdma run`: runs an unmodified RDMA program on a software device.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::str::FromStr;

use anyhow::{Context, bail};
use clap::Args;
use nichrome_abi::configuration as variables;
use nichrome_hca::{LocalPath, Stateless, Transport};
use nichrome_port::InterfaceName;
use nichrome_wan::{Bandwidth, Delay, Jitter, Loss, Probability, Reorder};

use super::environment::Libraries;
use super::mounts;
use super::options::{address_of, device_address};
use super::program::Program;
use crate::distinct::Distinct;
use crate::failure;
use crate::named_values::named_values;
use crate::number;

/// Run an unmodified RDMA program on a software device: replaces its libibverbs by one that speaks RoCEv2
/// over UDP, StaR, or iWARP over TCP.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// The transport: roce, star, where one side of a connection keeps no state, or iwarp, over TCP.
    #[arg(
        long, value_name = "NAME",
        value_parser = named_values(Transport::ALL.map(Transport::name), valid::<Transport>), hide_possible_values = true
    )]
    transport: Option<String>,
    /// With --transport star, the side that keeps no state: self, peer, or auto (a side whose budget is used
    /// up).
    #[arg(
        long, value_name = "SIDE",
        value_parser = named_values(Stateless::ALL.map(Stateless::name), valid::<Stateless>), hide_possible_values = true,
        requires = "transport"
    )]
    stateless: Option<String>,
    /// With --transport star, the maximum number of connections whose state this side keeps; it is
    /// stateless for further ones.
    #[arg(long, value_name = "NUMBER", requires = "transport", value_parser = number::whole(0..=usize::MAX))]
    connection_budget: Option<usize>,
    /// With --transport star, the file with the key that protects connection set-up, the same at both sides:
    /// at least 32 bytes, not accessible to other users. Required unless the address is a loopback address.
    #[arg(long, value_name = "FILE", requires = "transport")]
    key_file: Option<PathBuf>,
    /// With --transport star, do not authenticate packets where this side is stateless: on loopback addresses
    /// only, where every process can then read and write registered memory.
    #[arg(long, requires = "transport")]
    no_authenticate: bool,
    /// With --transport iwarp, request CRC-32C in every FPDU. It is used if either side requests it.
    #[arg(long, requires = "transport")]
    crc: bool,
    /// The device's address, one of this machine's. By default a free address in 127.0.0.0/8.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "iface", value_parser = device_address)]
    ip: Option<IpAddr>,
    /// The interface whose first address the device takes.
    #[arg(long, value_name = "NAME")]
    iface: Option<InterfaceName>,
    /// Maximum payload of a packet: 256, 512, 1024, 2048 or 4096. By default the largest that fits the
    /// interface.
    #[arg(long, value_name = "BYTES", value_parser = ["256", "512", "1024", "2048", "4096"])]
    path_mtu: Option<String>,
    /// Receive packets from the interfaces (AF_PACKET) instead of a UDP socket, to see the IPv4
    /// identification, which the ICRC covers. Needs CAP_NET_RAW.
    #[arg(long)]
    packets: bool,
    /// How packets reach other processes of this user on this machine: sockets, which use the kernel's
    /// network, where tcpdump and tc see them; or memory, which is faster and which both processes must
    /// choose.
    #[arg(
        long, value_name = "PATH",
        value_parser = named_values(LocalPath::ALL.map(LocalPath::name), valid::<LocalPath>), hide_possible_values = true
    )]
    local: Option<String>,
    /// Packets lost in each direction: 1%, gilbert:P,R, or packets:3,7,10-12.
    #[arg(long, value_name = "LOSS", value_parser = valid::<Loss>)]
    loss: Option<String>,
    /// Delay of each packet in each direction: 40ms, 1.5ms, 50us.
    #[arg(long, value_name = "TIME", value_parser = valid::<Delay>)]
    delay: Option<String>,
    /// Variation of the delay: 5ms (uniform), normal:5ms, pareto:5ms, pareto-normal:5ms.
    #[arg(long, value_name = "JITTER", value_parser = valid::<Jitter>)]
    jitter: Option<String>,
    /// Share of packets held back so that others overtake them: 1%, or 1%:5ms.
    #[arg(long, value_name = "SHARE[:TIME]", value_parser = valid::<Reorder>)]
    reorder: Option<String>,
    /// Share of packets duplicated: 0.5%.
    #[arg(long, value_name = "SHARE", value_parser = valid::<Probability>)]
    duplicate: Option<String>,
    /// Share of packets in which one bit is flipped: 0.1%.
    #[arg(long, value_name = "SHARE", value_parser = valid::<Probability>)]
    corrupt: Option<String>,
    /// Rate of the bottleneck: 10mbit, 1.5gbit.
    #[arg(long, value_name = "RATE", value_parser = valid::<Bandwidth>)]
    rate: Option<String>,
    /// Seed of the faults, memory keys and queue pair numbers. Anyone who knows the seed can guess the keys.
    /// By default random.
    #[arg(long, value_name = "NUMBER", value_parser = number::seed)]
    seed: Option<u64>,
    /// Record every packet in a pcapng file. %p in its name is the number of the process: programs that start
    /// others need a file for each.
    #[arg(long, value_name = "FILE.pcapng")]
    capture: Option<PathBuf>,
    /// Also show the device in /sys and /dev by mounts that only the program and its children see: for
    /// statically linked programs, programs that make system calls without the C library (Go), and unusual
    /// paths.
    #[arg(long)]
    mount: bool,
    /// Print the device's counters when the program exits.
    #[arg(long)]
    stats: bool,
    /// Print the environment variables set for the program.
    #[arg(long)]
    verbose: bool,
    /// The libibverbs.so.1 to use. By default the one built or installed with this command.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  nichrome rdma run -- ibv_devinfo -v
  nichrome rdma run -- ib_write_bw                    in one terminal
  nichrome rdma run -- ib_write_bw 127.0.0.1          in another
  nichrome rdma run --ip 192.0.2.7 --loss 1% --stats -- ibv_rc_pingpong -g 0

The exit status is the program's. The variables NICHROME_IP, NICHROME_LOSS, ... set the same options for programs that are \
started in another way.";

/// Validates text as a `T`, which the library will parse.
fn valid<T: FromStr<Err: Display>>(text: &str) -> Result<String, String> {
    text.parse::<T>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

impl Run {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let mut command = self.command()?;
        self.show_device()?;
        // exec returns only if it fails.
        let error = command.exec();
        Err(failure::not_executed(error, format!("cannot run {}", self.name().display())))
    }

    /// Returns the program's name or path.
    pub(super) fn name(&self) -> &OsStr {
        self.program.first().map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// Finds the program's file.
    pub(super) fn file(&self) -> anyhow::Result<Program> {
        Program::find(self.name(), &self.libraries()?.search_path())
    }

    /// Finds the folder of the libraries.
    pub(super) fn libraries(&self) -> anyhow::Result<Libraries> {
        Libraries::find(self.library.as_deref())
    }

    /// Mounts the device's files if `--mount` is given. To be called while this process has one thread only.
    pub(super) fn show_device(&self) -> anyhow::Result<()> {
        if !self.mount {
            return Ok(());
        }
        let variables = self.variables()?;
        let value = |name| {
            let given = variables.iter().find(|(variable, _)| *variable == name);
            given.map(|(_, value)| value.clone()).or_else(|| env::var_os(name))
        };
        let transport = value(variables::TRANSPORT).and_then(|name| name.to_str()?.parse().ok());
        let place = [variables::IP, variables::INTERFACE].map(value);
        mounts::show_device(self.libraries()?.folder(), transport.unwrap_or_default(), &place)
    }

    /// Returns the command to run the program, with arguments and environment.
    ///
    /// # Errors
    /// The program cannot load the libraries, or they are missing. A statically linked program is accepted
    /// with `--mount`.
    pub(super) fn command(&self) -> anyhow::Result<Command> {
        let (name, arguments) = self.program.split_first().context("there is no program to run")?;
        if name.as_encoded_bytes().starts_with(b"-") {
            let name = name.display();
            return Err(failure::usage(format!(
                "there is no option {name}: 'nichrome rdma run --help' lists them"
            )));
        }
        self.iface.map(address_of).transpose()?;
        let libraries = self.libraries()?;
        let linkage = self.file()?.check()?;
        if linkage.is_static && !self.mount {
            bail!(
                "{} is statically linked and cannot load another libibverbs: link it dynamically, or use --mount if it only \
                 looks for the device in /sys and /dev",
                name.display()
            );
        }
        let mut variables = self.variables()?;
        variables.extend(libraries.variables(linkage.checks_link_order));
        if self.verbose {
            for (variable, value) in &variables {
                failure::notice(format_args!("nichrome: {variable}={}", value.display()));
            }
        }
        let mut command = Command::new(name);
        command.args(arguments).envs(variables);
        Ok(command)
    }

    fn variables(&self) -> anyhow::Result<Vec<(&'static str, OsString)>> {
        let absolute = |path: &PathBuf| std::path::absolute(path).map(PathBuf::into_os_string);
        let mut files = Distinct::default();
        self.key_file.iter().try_for_each(|path| files.read("--key-file", path))?;
        files.write([("--capture", self.capture.as_deref())])?;
        let capture = self.capture.as_ref().map(absolute).transpose().context("--capture")?;
        let key_file = self.key_file.as_ref().map(absolute).transpose().context("--key-file")?;
        let text = |text: &Option<String>| text.as_ref().map(OsString::from);
        // An address in this command's environment would take precedence over the interface.
        let ip = self.ip.map(|ip| ip.to_string()).or_else(|| self.iface.map(|_| String::new()));
        let all = [
            (variables::TRANSPORT, text(&self.transport)),
            (variables::STATELESS, text(&self.stateless)),
            (variables::CONNECTION_BUDGET, self.connection_budget.map(|budget| budget.to_string().into())),
            (variables::KEY_FILE, key_file),
            (variables::AUTHENTICATE, self.no_authenticate.then(|| "0".into())),
            (variables::CRC, self.crc.then(|| "1".into())),
            (variables::IP, text(&ip)),
            (variables::INTERFACE, self.iface.map(|name| name.to_string().into())),
            (variables::MTU, text(&self.path_mtu)),
            (variables::PACKETS, self.packets.then(|| "1".into())),
            (variables::LOCAL, text(&self.local)),
            (variables::LOSS, text(&self.loss)),
            (variables::DELAY, text(&self.delay)),
            (variables::JITTER, text(&self.jitter)),
            (variables::REORDER, text(&self.reorder)),
            (variables::DUPLICATE, text(&self.duplicate)),
            (variables::CORRUPT, text(&self.corrupt)),
            (variables::RATE, text(&self.rate)),
            (variables::SEED, self.seed.map(|seed| seed.to_string().into())),
            (variables::CAPTURE, capture),
            (variables::STATS, self.stats.then(|| "1".into())),
        ];
        Ok(all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }
}
