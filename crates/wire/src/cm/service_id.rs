//! Service identifiers of IP addressing (annex A11).

/// A space of ports, by its number in the annex and in the kernel's `enum rdma_ucm_port_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortSpace {
    /// IP over InfiniBand: datagrams.
    Ipoib,
    /// InfiniBand: any transport service.
    Ib,
    /// TCP: connections.
    Tcp,
    /// UDP: datagrams.
    Udp,
}

impl PortSpace {
    /// Every port space.
    pub const ALL: [Self; 4] = [Self::Ipoib, Self::Ib, Self::Tcp, Self::Udp];

    /// The number of the space.
    pub const fn number(self) -> u16 {
        match self {
            Self::Ipoib => 0x0002,
            Self::Ib => 0x013F,
            Self::Tcp => 0x0106,
            Self::Udp => 0x0111,
        }
    }

    /// Returns the port space with this number; `None` if there is none.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.number() == number)
    }
}

/// The service that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service at a port.
    pub const fn of_port(space: PortSpace, port: u16) -> Self {
        Self((space.number() as u64) << 16 | port as u64)
    }

    /// Space and port; `None` if the identifier does not follow the annex.
    pub fn port(self) -> Option<(PortSpace, u16)> {
        let space = u16::try_from(self.0 >> 16).ok().and_then(PortSpace::from_number)?;
        Some((space, self.0 as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_its_service_and_back() {
        assert_eq!(ServiceId::of_port(PortSpace::Tcp, 7174), ServiceId(0x0106_1C06));
        for space in PortSpace::ALL {
            assert_eq!(ServiceId::of_port(space, 0xFFFF).port(), Some((space, 0xFFFF)));
        }
        assert_eq!(ServiceId(1 << 32 | 0x0106_1C06).port(), None);
    }
}
