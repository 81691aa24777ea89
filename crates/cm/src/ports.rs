//! The ports that identifiers are bound to.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use nichrome_rdma::RandomNumbers;
use nichrome_wire::cm::PortSpace;

use crate::error::CommandError;
use crate::host::{Host, PortCondition, ReserveError};
use crate::name::IdName;

/// Maximum number of ports that are tried to find an unused one. Each try takes system calls: with almost all
/// ports in TIME_WAIT, trying all ports would take a tenth of a second for each connection.
const MAX_TRIES: usize = 1024;

/// Options for binding an identifier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    pub(crate) source: SocketAddr,
    /// Shares the port with others that also share it.
    pub(crate) reuse: bool,
    /// Does not take the port of the other address family.
    pub(crate) family_only: bool,
}

/// The owners of each port that is in use, by port space.
pub(crate) struct Ports {
    owners: BTreeMap<(PortSpace, u16), Vec<(IdName, Binding)>>,
    ephemeral: (u16, u16),
    random: RandomNumbers,
}

impl Ports {
    pub(crate) fn new(ephemeral: (u16, u16), seed: u128) -> Self {
        Self { owners: BTreeMap::new(), ephemeral, random: RandomNumbers::new(seed, "ports") }
    }

    /// Binds an identifier to the port of `binding`, or to a free one for port 0; returns the port.
    pub(crate) fn bind<H: Host>(
        &mut self,
        host: &mut H,
        space: PortSpace,
        id: IdName,
        binding: Binding,
    ) -> Result<u16, CommandError> {
        match binding.source.port() {
            0 => self.bind_any(host, space, id, binding),
            port => {
                self.check(space, port, id, &binding)?;
                self.take(host, space, port, id, binding)
            }
        }
    }

    /// Binds to the first unused port from a random one on; if there is none among the first ones, to the
    /// first reusable one.
    fn bind_any<H: Host>(
        &mut self,
        host: &mut H,
        space: PortSpace,
        id: IdName,
        binding: Binding,
    ) -> Result<u16, CommandError> {
        let (first, last) = self.ephemeral;
        let start = first + self.random.below(u32::from(last - first) + 1) as u16;
        let mut first_of = |tries, condition| {
            (start..=last)
                .chain(first..start)
                .filter(|port| !self.owners.contains_key(&(space, *port)))
                .take(tries)
                .map(|port| (port, host.reserve_port(space, binding.source.ip(), port, condition)))
                .find(|(_, reserved)| *reserved != Err(ReserveError::Taken))
        };
        let found = first_of(MAX_TRIES, PortCondition::Unused)
            .or_else(|| first_of(usize::MAX, PortCondition::Reusable));
        let (port, reserved) = found.ok_or(CommandError::AddressNotAvailable)?;
        reserved.map_err(command_error)?;
        self.owners.insert(
            (space, port),
            vec![(id, Binding { source: with_port(binding.source, port), ..binding })],
        );
        Ok(port)
    }

    fn take<H: Host>(
        &mut self,
        host: &mut H,
        space: PortSpace,
        port: u16,
        id: IdName,
        binding: Binding,
    ) -> Result<u16, CommandError> {
        if !self.owners.contains_key(&(space, port)) {
            let reserved = host.reserve_port(space, binding.source.ip(), port, PortCondition::Reusable);
            reserved.map_err(command_error)?;
        }
        self.owners.entry((space, port)).or_default().push((id, binding));
        Ok(port)
    }

    /// Returns an error if another owner of the port excludes this one.
    fn check(&self, space: PortSpace, port: u16, id: IdName, binding: &Binding) -> Result<(), CommandError> {
        let owners = self.owners.get(&(space, port)).into_iter().flatten();
        for (_, other) in owners.filter(|(owner, _)| *owner != id) {
            let (address, theirs) = (binding.source.ip(), other.source.ip());
            let in_own_families =
                binding.family_only && other.family_only && address.is_ipv4() != theirs.is_ipv4();
            if binding.reuse && other.reuse || in_own_families {
                continue;
            }
            if address.is_unspecified() || theirs.is_unspecified() {
                return Err(CommandError::AddressNotAvailable);
            }
            if address == theirs {
                return Err(CommandError::AddressInUse);
            }
        }
        Ok(())
    }

    /// Makes an identifier the exclusive owner of its port, as a listener must be.
    pub(crate) fn claim(
        &mut self,
        space: PortSpace,
        id: IdName,
        binding: Binding,
    ) -> Result<(), CommandError> {
        let binding = Binding { reuse: false, ..binding };
        let port = binding.source.port();
        self.check(space, port, id, &binding)?;
        self.change(space, id, binding);
        Ok(())
    }

    /// Changes how an identifier is bound to the port that it has.
    pub(crate) fn change(&mut self, space: PortSpace, id: IdName, binding: Binding) {
        let owners = self.owners.get_mut(&(space, binding.source.port())).into_iter().flatten();
        owners.filter(|(owner, _)| *owner == id).for_each(|(_, held)| *held = binding);
    }

    /// Releases the port of an identifier.
    pub(crate) fn release<H: Host>(&mut self, host: &mut H, space: PortSpace, port: u16, id: IdName) {
        let Some(owners) = self.owners.get_mut(&(space, port)) else { return };
        owners.retain(|(owner, _)| *owner != id);
        if owners.is_empty() {
            self.owners.remove(&(space, port));
            host.release_port(space, port);
        }
    }

    /// Returns the identifiers that are bound to a port and take requests to `destination`: those bound to
    /// the address first.
    pub(crate) fn bound(
        &self,
        space: PortSpace,
        port: u16,
        destination: IpAddr,
    ) -> impl Iterator<Item = IdName> {
        let owners = move || self.owners.get(&(space, port)).into_iter().flatten();
        let exact = owners().filter(move |(_, binding)| binding.source.ip() == destination);
        let wild = owners().filter(move |(_, binding)| is_wildcard_for(binding, destination));
        exact.chain(wild).map(|(id, _)| *id)
    }

    /// Returns the identifiers that are bound to a port.
    pub(crate) fn owners(&self, space: PortSpace, port: u16) -> impl Iterator<Item = IdName> {
        self.owners.get(&(space, port)).into_iter().flatten().map(|(id, _)| *id)
    }

    /// Number of ports in use.
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }
}

/// Returns true if the binding is to all addresses, that of `destination` among them.
fn is_wildcard_for(binding: &Binding, destination: IpAddr) -> bool {
    let source = binding.source.ip();
    let same_family = source.is_ipv4() == destination.is_ipv4();
    source.is_unspecified() && (same_family || source.is_ipv6() && !binding.family_only)
}

/// The address with another port.
pub(crate) const fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

fn command_error(error: ReserveError) -> CommandError {
    match error {
        ReserveError::Taken => CommandError::AddressInUse,
        ReserveError::NoSocket(error) => CommandError::NoSocket(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Errno;
    use crate::host::{OwnAddresses, PortUse};

    fn binding(source: &str) -> Binding {
        Binding { source: source.parse().unwrap(), reuse: false, family_only: true }
    }

    #[test]
    fn an_address_excludes_itself_and_all_addresses_exclude_each() {
        let (mut ports, mut host) = (Ports::new((5, 6), 1), OwnAddresses(Vec::new()));
        let mut bind = |id, source| ports.bind(&mut host, PortSpace::Tcp, IdName(id), binding(source));
        assert_eq!(bind(1, "10.0.0.1:80"), Ok(80));
        assert_eq!(bind(2, "10.0.0.1:80"), Err(CommandError::AddressInUse));
        assert_eq!(bind(3, "10.0.0.2:80"), Ok(80));
        assert_eq!(bind(4, "0.0.0.0:80"), Err(CommandError::AddressNotAvailable));
        assert_eq!(bind(5, "[::]:80"), Ok(80));
        assert_eq!(bind(4, "[::]:80"), Err(CommandError::AddressNotAvailable));
        assert_eq!(bind(4, "[fe80::1]:80"), Err(CommandError::AddressNotAvailable));
        let any_port: Vec<_> = (6..9).map(|id| bind(id, "10.0.0.1:0")).collect();
        assert!(any_port[..2].contains(&Ok(5)) && any_port[..2].contains(&Ok(6)));
        assert_eq!(any_port[2], Err(CommandError::AddressNotAvailable));
        let found: Vec<IdName> = ports.bound(PortSpace::Tcp, 80, "10.0.0.2".parse().unwrap()).collect();
        assert_eq!(found, [IdName(3)]);
        (1..9).for_each(|id| ports.release(&mut host, PortSpace::Tcp, 80, IdName(id)));
        assert_eq!(ports.len(), 2);
    }

    #[test]
    fn a_shared_port_is_not_listened_at_by_two() {
        let (mut ports, mut host) = (Ports::new((1, 2), 1), OwnAddresses(Vec::new()));
        let shared = Binding { reuse: true, ..binding("10.0.0.1:80") };
        for id in [1, 2] {
            assert_eq!(ports.bind(&mut host, PortSpace::Tcp, IdName(id), shared), Ok(80));
        }
        assert_eq!(ports.claim(PortSpace::Tcp, IdName(1), shared), Err(CommandError::AddressInUse));
        ports.release(&mut host, PortSpace::Tcp, 80, IdName(2));
        assert_eq!(ports.claim(PortSpace::Tcp, IdName(1), shared), Ok(()));
        assert_eq!(ports.bind(&mut host, PortSpace::Tcp, IdName(3), shared), Err(CommandError::AddressInUse));
    }

    /// Port 7 is another process's; connections from ports 9 and up have ended. No socket can be opened for
    /// port 6.
    struct Used;

    impl Host for Used {
        fn source_index(&mut self, _: IpAddr) -> Option<u8> {
            None
        }

        fn is_wildcard(&self, address: IpAddr) -> bool {
            address.is_unspecified()
        }

        fn reserve_port(
            &mut self,
            _: PortSpace,
            _: IpAddr,
            port: u16,
            condition: PortCondition,
        ) -> Result<(), ReserveError> {
            match port {
                6 => Err(ReserveError::NoSocket(Errno::EMFILE)),
                7 => Err(ReserveError::Taken),
                9.. if condition == PortCondition::Unused => Err(ReserveError::Taken),
                _ => Ok(()),
            }
        }

        fn listen(&mut self, _: PortSpace, _: u16) -> bool {
            false
        }

        fn use_by_others(&mut self, _: PortSpace, _: u16) -> PortUse {
            PortUse::Reserved
        }

        fn release_port(&mut self, _: PortSpace, _: u16) {}

        fn stop_listening(&mut self, _: PortSpace, _: u16) {}
    }

    #[test]
    fn ports_of_other_processes_are_in_use() {
        let mut ports = Ports::new((7, 8), 1);
        let mut bind = |source| ports.bind(&mut Used, PortSpace::Udp, IdName(1), binding(source));
        assert_eq!(bind("10.0.0.1:7"), Err(CommandError::AddressInUse));
        assert_eq!(bind("10.0.0.1:0"), Ok(8));
        assert_eq!(bind("10.0.0.1:0"), Err(CommandError::AddressNotAvailable));
    }

    #[test]
    fn no_other_port_is_tried_if_no_socket_can_be_opened() {
        let none = Err(CommandError::NoSocket(Errno::EMFILE));
        for source in ["10.0.0.1:6", "10.0.0.1:0"] {
            let mut ports = Ports::new((6, 6), 1);
            assert_eq!(ports.bind(&mut Used, PortSpace::Tcp, IdName(1), binding(source)), none);
        }
        let of_any = |seed| {
            let mut ports = Ports::new((6, 8), seed);
            ports.bind(&mut Used, PortSpace::Tcp, IdName(1), binding("10.0.0.1:0"))
        };
        // If the search begins at port 7 or 8, port 8 is the first that can be reserved.
        let results: Vec<_> = (0..20).map(of_any).collect();
        assert!(results.iter().all(|result| *result == none || *result == Ok(8)), "{results:?}");
        assert!(results.contains(&none) && results.contains(&Ok(8)), "{results:?}");
    }

    #[test]
    fn ports_of_ended_connections_are_chosen_last() {
        for seed in 0..20 {
            let mut ports = Ports::new((8, 10), seed);
            let mut bind = |source| ports.bind(&mut Used, PortSpace::Tcp, IdName(1), binding(source));
            assert_eq!(bind("10.0.0.1:0"), Ok(8));
            assert!(bind("10.0.0.1:0").is_ok() && bind("10.0.0.1:0").is_ok());
        }
        let mut ports = Ports::new((8, 10), 1);
        assert_eq!(ports.bind(&mut Used, PortSpace::Tcp, IdName(1), binding("10.0.0.1:9")), Ok(9));
    }
}
