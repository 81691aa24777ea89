//! An interface with an attached XDP program.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::bpf::{Link, Program, SocketMap};
use super::error::{XdpError, refused};
use super::mode::{XdpChoice, XdpMode};
use crate::channels::receive_queues;
use crate::netlink::Interface;
use crate::packet_options::{make_promiscuous, packet_socket};

/// An interface in promiscuous mode with an XDP program that redirects each queue's frames to its
/// [`super::XdpQueue`]; frames of other queues go to the kernel. Detaches on drop and at the end of the
/// process.
#[derive(Debug)]
pub struct XdpInterface {
    interface: Interface,
    mode: XdpMode,
    queues: u32,
    pub(super) sockets: SocketMap,
    _link: Link,
    _promiscuous: OwnedFd,
}

impl XdpInterface {
    /// Attaches to `interface`, which must be in the network namespace of this thread.
    pub fn attach(interface: &Interface, choice: XdpChoice) -> Result<Self, XdpError> {
        let name = interface.name;
        let promiscuous = packet_socket().map_err(refused(name, "a packet socket"))?;
        make_promiscuous(&promiscuous, interface.index).map_err(refused(name, "promiscuous mode"))?;
        let queues = receive_queues(&promiscuous, name).map_err(refused(name, "the number of queues"))?;
        let sockets = SocketMap::new(queues).map_err(refused(name, "a BPF map of sockets"))?;
        let program = Program::load(&sockets).map_err(refused(name, "the XDP program"))?;
        let (link, mode) = attach(&program, interface, choice)?;
        let interface = interface.clone();
        Ok(Self { interface, mode, queues, sockets, _link: link, _promiscuous: promiscuous })
    }

    /// Returns the mode in which the program runs.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Returns the number of receive queues. Frames of queues without a [`super::XdpQueue`] go to the kernel.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Returns the interface's state at the time of attachment.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }
}

fn attach(program: &Program, interface: &Interface, choice: XdpChoice) -> Result<(Link, XdpMode), XdpError> {
    let attach = |mode| {
        let link = Link::attach(program, interface.index, mode);
        link.map(|link| (link, mode)).map_err(|error| why_not_attached(interface, mode, error))
    };
    match choice {
        XdpChoice::Only(mode) => attach(mode),
        XdpChoice::Automatic => match attach(XdpMode::Native) {
            Err(XdpError::Mode { .. }) => attach(XdpMode::Generic),
            done => done,
        },
    }
}

fn why_not_attached(interface: &Interface, mode: XdpMode, error: Errno) -> XdpError {
    let name = interface.name;
    match error {
        Errno::BUSY | Errno::EXIST => XdpError::Busy(name),
        Errno::PERM | Errno::ACCESS | Errno::NODEV => refused(name, "to attach the XDP program")(error),
        error => XdpError::Mode { name, mode, error: error.into() },
    }
}
