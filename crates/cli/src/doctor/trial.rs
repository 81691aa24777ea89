//! Executes trials in this process, which may then be in other namespaces.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context, ensure};
use nichrome_port::{
    InterfaceName, MountNamespace, NamespaceError, Netlink, NetworkNamespace, Offloads, Onset, PacketSocket,
    ProcessNamespace, RealTime, Tap, XdpChoice, XdpConfig, XdpInterface, XdpQueue, gain_network_admin,
};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::machine::{DISABLE_IPV6, Refusal, Trial};

/// Name of the interface that a trial creates in its own namespace.
const INTERFACE: &str = "trial";

/// Executes a trial; prints a refusal as JSON.
pub(super) fn run(trial: Trial) -> anyhow::Result<()> {
    if let Err(error) = attempt(trial) {
        serde_json::to_writer(io::stdout(), &refusal(&error))?;
    }
    Ok(())
}

fn attempt(trial: Trial) -> anyhow::Result<()> {
    match trial {
        Trial::Namespaces => {
            gain_network_admin()?;
            NetworkNamespace::new()?;
        }
        Trial::ProcessNamespace => {
            gain_network_admin()?;
            ProcessNamespace::new()?;
        }
        Trial::MountNamespace => {
            MountNamespace::enter()?;
        }
        Trial::Tap => {
            gain_network_admin()?;
            NetworkNamespace::new()?.run(tap)??;
        }
        Trial::RawSocket => {
            PacketSocket::open(&Netlink::open()?.interface("lo".parse()?)?)?;
        }
        Trial::NetworkAdministration => {
            // SO_RCVBUFFORCE (socket(7)) needs CAP_NET_ADMIN and affects this socket only.
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            set_socket_recv_buffer_size_force(&socket, 1 << 16)?;
        }
        Trial::Xdp => NetworkNamespace::new()?.run(xdp)??,
        Trial::Ipv6 => {
            gain_network_admin()?;
            NetworkNamespace::new()?.run(ipv6)??;
        }
        Trial::Loopback => drop(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?),
        Trial::RealTime => {
            RealTime::request(Onset::Waking)?;
        }
        Trial::Iperf3 => drop(Command::new("iperf3").arg("--version").output().context("cannot run iperf3")?),
    }
    Ok(())
}

fn tap() -> anyhow::Result<Tap> {
    Ok(Tap::new(INTERFACE.parse()?, Offloads::All)?)
}

fn xdp() -> anyhow::Result<()> {
    let name: InterfaceName = INTERFACE.parse()?;
    let _tap = tap()?;
    let netlink = Netlink::open()?;
    netlink.set_up(&netlink.interface(name)?)?;
    let attached = XdpInterface::attach(&netlink.interface(name)?, XdpChoice::Automatic)?;
    XdpQueue::open(&attached, 0, XdpConfig::default()).context("an AF_XDP socket").map(drop)
}

/// Fails unless the interfaces of this network namespace have IPv6 from their creation on.
fn ipv6() -> anyhow::Result<()> {
    let disabled = fs::read_to_string(DISABLE_IPV6).with_context(|| format!("cannot read {DISABLE_IPV6}"))?;
    ensure!(disabled.trim() == "0", "new network namespaces have no IPv6");
    Ok(())
}

fn refusal(error: &anyhow::Error) -> Refusal {
    match error.downcast_ref() {
        Some(NamespaceError::Refused { kind, error, hint }) => Refusal {
            error: format!("the kernel refuses a {kind} namespace ({error})"),
            remedy: Some(hint.clone()),
        },
        Some(NamespaceError::Mount { path, error, hint }) => Refusal {
            error: format!("the kernel refuses a mount at {} ({error})", path.display()),
            remedy: Some(hint.clone()),
        },
        _ => Refusal { error: format!("{error:#}"), remedy: None },
    }
}
