//! The manager's questions about the machine that must be answered within a command.

use std::net::IpAddr;

use nichrome_wire::cm::PortSpace;

use crate::error::Errno;

/// The use of a port by other processes at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortUse {
    /// None has reserved it.
    Free,
    /// One has reserved it, and does not listen.
    Reserved,
    /// One listens at it: its manager gets the requests that arrive from now on.
    Listening,
}

/// The condition of a port for its reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortCondition {
    /// No connection uses it, not even an ended one, whose port TCP keeps for a minute (TIME_WAIT).
    Unused,
    /// Ended connections may use it. Connecting to one of their peers fails with EADDRNOTAVAIL.
    Reusable,
}

/// Why a port is not reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveError {
    /// Another process has it, or the condition is not met.
    Taken,
    /// No socket can be opened, whatever the port.
    NoSocket(Errno),
}

/// The machine's addresses, and the ports that other processes use.
pub trait Host {
    /// Returns the index of an address among the adapter's addresses; `None` if the adapter does not have it.
    fn source_index(&mut self, address: IpAddr) -> Option<u8>;

    /// Returns true if an identifier that is bound to this address is bound to all addresses: the unspecified
    /// address and, as with Linux (`cma_any_addr`), addresses of the loopback interface. An adapter on the
    /// loopback interface has loopback addresses of its own.
    fn is_wildcard(&self, address: IpAddr) -> bool;

    /// Reserves a port among the processes that share the address. An unspecified address means all. Called
    /// once for each port that this manager begins to use.
    ///
    /// # Errors
    /// The port is taken, or no socket can be opened.
    fn reserve_port(
        &mut self,
        space: PortSpace,
        address: IpAddr,
        port: u16,
        condition: PortCondition,
    ) -> Result<(), ReserveError>;

    /// Directs peers' requests for a reserved port to this manager; returns false if another program of the
    /// machine has the port.
    fn listen(&mut self, space: PortSpace, port: u16) -> bool;

    /// Returns the use of a port by other processes at the address.
    fn use_by_others(&mut self, space: PortSpace, port: u16) -> PortUse;

    /// Releases a port. Requests for a port that this manager listened at are delivered to it until
    /// [`stop_listening`](Self::stop_listening).
    fn release_port(&mut self, space: PortSpace, port: u16);

    /// Undoes [`listen`](Self::listen), unless another process listens at the port by now.
    fn stop_listening(&mut self, space: PortSpace, port: u16);
}

/// A machine with these addresses, whose ports no other process uses.
#[derive(Clone, Debug)]
pub struct OwnAddresses(pub Vec<IpAddr>);

impl Host for OwnAddresses {
    fn source_index(&mut self, address: IpAddr) -> Option<u8> {
        self.0.iter().position(|own| *own == address).and_then(|index| u8::try_from(index).ok())
    }

    fn is_wildcard(&self, address: IpAddr) -> bool {
        address.is_unspecified() || address.is_loopback() && !self.0.iter().any(IpAddr::is_loopback)
    }

    fn reserve_port(
        &mut self,
        _: PortSpace,
        _: IpAddr,
        _: u16,
        _: PortCondition,
    ) -> Result<(), ReserveError> {
        Ok(())
    }

    fn listen(&mut self, _: PortSpace, _: u16) -> bool {
        true
    }

    fn use_by_others(&mut self, _: PortSpace, _: u16) -> PortUse {
        PortUse::Free
    }

    fn release_port(&mut self, _: PortSpace, _: u16) {}

    fn stop_listening(&mut self, _: PortSpace, _: u16) {}
}
