//! Packet filters: `host 192.0.2.7 and port 443 and after 2s`.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use nichrome_port::capture::{LinkType, Record};
use nichrome_wan::decimal;
use nichrome_wire::{
    EtherType, Instant, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader, UdpHeader, UpperLayer,
};
use thiserror::Error;

/// A filter: a packet matches if it meets all terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    terms: Vec<Term>,
    /// Time of the capture's first packet.
    start: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    is_negated: bool,
    /// A packet must meet all of them.
    predicates: Vec<Predicate>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Predicate {
    Version(u8),
    Protocol(IpProtocol),
    /// Source or destination address has this prefix.
    Net(IpAddr, u32),
    Port(u16),
    /// At least this time after the first packet.
    After(Duration),
    /// Less than this time after the first packet.
    Before(Duration),
}

const TERMS: &str = "expected tcp, udp, ip, ip6, host ADDRESS, net ADDRESS/BITS, port NUMBER, after TIME and before TIME, \
                     each with 'not' before it if wanted, joined by 'and'";

/// An invalid filter.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum FilterError {
    #[error("the filter is empty: {TERMS}")]
    Empty,
    #[error("'{0}' is not a term: {TERMS}")]
    Term(String),
    #[error("a term is missing at the end: {TERMS}")]
    End,
    #[error("'and' is missing before '{0}': a filter is terms joined by 'and'")]
    And(String),
    #[error("'{0}' needs {1}, not '{2}'")]
    Value(&'static str, &'static str, String),
    #[error("'{0}' needs {1} behind it")]
    NoValue(&'static str, &'static str),
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if text.trim().is_empty() {
            return Err(FilterError::Empty);
        }
        let mut words = text.split_whitespace();
        let mut terms = Vec::new();
        loop {
            let mut word = words.next().unwrap_or_default();
            let is_negated = word == "not";
            if is_negated {
                word = words.next().unwrap_or_default();
            }
            let mut predicates = vec![term(word, &mut words)?];
            let mut next = words.next();
            // As in pcap-filter(7): 'tcp port 80'.
            if matches!(word, "ip" | "ip6" | "tcp" | "udp")
                && let Some(qualified @ ("host" | "net" | "port")) = next
            {
                predicates.push(term(qualified, &mut words)?);
                next = words.next();
            }
            terms.push(Term { is_negated, predicates });
            match next {
                None => return Ok(Self { terms, start: None }),
                Some("and") => {}
                Some(other) => return Err(FilterError::And(other.to_owned())),
            }
        }
    }
}

/// Parses a term that begins with `word`.
fn term<'a>(word: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<Predicate, FilterError> {
    Ok(match word {
        "ip" => Predicate::Version(4),
        "ip6" => Predicate::Version(6),
        "tcp" => Predicate::Protocol(IpProtocol::TCP),
        "udp" => Predicate::Protocol(IpProtocol::UDP),
        "host" => value("host", "an IP address", words, |text| {
            let address: IpAddr = text.parse().ok()?;
            Some(Predicate::Net(address, bits(address)))
        })?,
        "net" => value("net", "an IP address and a number of bits, such as 192.0.2.0/24", words, |text| {
            let (address, len) = text.split_once('/')?;
            let (address, len): (IpAddr, u32) = (address.parse().ok()?, len.parse().ok()?);
            (len <= bits(address)).then_some(Predicate::Net(address, len))
        })?,
        "port" => {
            value("port", "a number from 0 to 65535", words, |text| text.parse().ok().map(Predicate::Port))?
        }
        "after" => value("after", TIME, words, |text| time(text).map(Predicate::After))?,
        "before" => value("before", TIME, words, |text| time(text).map(Predicate::Before))?,
        "" => return Err(FilterError::End),
        other => return Err(FilterError::Term(other.to_owned())),
    })
}

const TIME: &str = "a time from the first packet on, such as 50us, 1.5s or 2m";

fn value<'a>(
    name: &'static str,
    needed: &'static str,
    words: &mut impl Iterator<Item = &'a str>,
    read: impl FnOnce(&str) -> Option<Predicate>,
) -> Result<Predicate, FilterError> {
    let text = words.next().ok_or(FilterError::NoValue(name, needed))?;
    read(text).ok_or_else(|| FilterError::Value(name, needed, text.to_owned()))
}

fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Parses a number with its unit, exact to the nanosecond.
fn time(text: &str) -> Option<Duration> {
    let unit_at = text.find(|letter: char| letter.is_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let nanos = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    decimal::parse(number, nanos).map(Duration::from_nanos)
}

impl Filter {
    /// Returns true if the packet matches. Must be called for each packet of the capture, in order.
    pub(crate) fn takes(&mut self, record: &Record, bytes: &[u8]) -> bool {
        let since = record.time - *self.start.get_or_insert(record.time);
        let packet = Packet::read(record.link_type, bytes);
        let holds = |predicate: &Predicate| match predicate {
            Predicate::After(time) => since >= *time,
            Predicate::Before(time) => since < *time,
            of_packet => packet.as_ref().is_some_and(|packet| packet.meets(of_packet)),
        };
        self.terms.iter().all(|Term { is_negated, predicates }| *is_negated != predicates.iter().all(holds))
    }
}

/// The fields of an IP packet that terms test.
struct Packet {
    version: u8,
    protocol: IpProtocol,
    addresses: [IpAddr; 2],
    /// `None` for other protocols than TCP and UDP, and for later fragments.
    ports: Option<[u16; 2]>,
}

impl Packet {
    fn read(link_type: LinkType, bytes: &[u8]) -> Option<Self> {
        let packet = match link_type {
            LinkType::Ethernet => {
                let link = LinkHeader::new(bytes)?;
                let is_ip = matches!(link.ethertype(), EtherType::IPV4 | EtherType::IPV6);
                is_ip.then(|| link.payload())?
            }
            other => bytes.get(other.header_len(bytes)..)?,
        };
        match packet.first()? >> 4 {
            4 => {
                let ip = Ipv4Header::new(packet)?;
                let ports = packet.get(ip.header_len()..).filter(|_| ip.fragment().is_first());
                let addresses = [ip.src().into(), ip.dst().into()];
                Some(Self::new(4, ip.protocol(), addresses, ports))
            }
            6 => {
                let ip = Ipv6Header::new(packet)?;
                // Only the captured part: the packet may be longer.
                let payload = &packet[Ipv6Header::LEN..];
                let upper = UpperLayer::find(ip.next_header(), payload).ok();
                let protocol = upper.as_ref().map_or(ip.next_header(), |upper| upper.protocol);
                let first = upper.filter(|upper| upper.fragment.is_none_or(|ip| ip.fragment.is_first()));
                let ports = first.and_then(|upper| payload.get(upper.offset..));
                Some(Self::new(6, protocol, [ip.src().into(), ip.dst().into()], ports))
            }
            _ => None,
        }
    }

    fn new(version: u8, protocol: IpProtocol, addresses: [IpAddr; 2], transport: Option<&[u8]>) -> Self {
        // TCP and UDP have the ports at the same offsets.
        let has_ports = matches!(protocol, IpProtocol::TCP | IpProtocol::UDP);
        let header = transport.filter(|_| has_ports).and_then(UdpHeader::new);
        let ports = header.map(|header| [header.src_port(), header.dst_port()]);
        Self { version, protocol, addresses, ports }
    }

    fn meets(&self, predicate: &Predicate) -> bool {
        match predicate {
            Predicate::Version(version) => self.version == *version,
            Predicate::Protocol(protocol) => self.protocol == *protocol,
            Predicate::Net(net, len) => self.addresses.iter().any(|address| is_within(*address, *net, *len)),
            Predicate::Port(port) => self.ports.is_some_and(|ports| ports.contains(port)),
            Predicate::After(_) | Predicate::Before(_) => false,
        }
    }
}

fn is_within(address: IpAddr, net: IpAddr, len: u32) -> bool {
    match (address, net) {
        (IpAddr::V4(address), IpAddr::V4(net)) => {
            (address.to_bits() ^ net.to_bits()).checked_shr(32 - len).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(net)) => {
            (address.to_bits() ^ net.to_bits()).checked_shr(128 - len).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nichrome_wire::{Network, TcpFrame};
    use std::net::Ipv6Addr;

    fn record(nanos: u64) -> Record {
        let time = Instant::from_nanos(nanos);
        Record { time, interface: 0, link_type: LinkType::Ethernet, original_len: 0 }
    }

    /// Returns true if the filter takes a TCP segment of 10.0.0.1:1 to 10.0.0.2:443 a second after the first
    /// packet.
    fn takes(filter: &str) -> bool {
        let mut filter: Filter = filter.parse().unwrap();
        filter.takes(&record(5), &[]);
        let mut network = Network::default();
        if let Network::Ipv4 { src, dst, .. } = &mut network {
            (*src, *dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        }
        let frame = TcpFrame { network, src_port: 1, dst_port: 443, ..TcpFrame::default() }.build();
        filter.takes(&record(1_000_000_005), &frame)
    }

    #[test]
    fn a_packet_meets_every_term_or_is_left_out() {
        for filter in [
            "tcp",
            "ip and port 443",
            "host 10.0.0.2",
            "net 10.0.0.0/8 and not udp",
            "net 0.0.0.0/0",
            "not ip6",
            "after 1s",
            "before 1.1s and after 900ms",
            "not host 10.0.0.3",
            "tcp port 443 and ip host 10.0.0.1",
            "not tcp port 80",
            "not udp port 443 and tcp net 10.0.0.0/8",
        ] {
            assert!(takes(filter), "{filter}");
        }
        for filter in [
            "udp",
            "ip6",
            "port 80",
            "tcp and port 80",
            "net 11.0.0.0/8",
            "net ::/0",
            "before 1s",
            "after 1001ms",
            "not tcp",
            "udp port 443",
            "not tcp port 443",
        ] {
            assert!(!takes(filter), "{filter}");
        }
    }

    /// Floating-point numbers (f64) would be exact up to 52 days only.
    #[test]
    fn times_are_exact_to_the_nanosecond() {
        let takes_at = |filter: &str, nanos: u64| {
            let mut filter: Filter = filter.parse().unwrap();
            filter.takes(&record(5), &[]);
            filter.takes(&record(5 + nanos), &[])
        };
        for micros in (1..5000).chain([86_400_000_001, 31_536_000_000_001]) {
            for text in [format!("{micros}us"), format!("{}.{:06}s", micros / 1_000_000, micros % 1_000_000)]
            {
                let nanos = micros * 1000;
                for (time, is_after) in [(nanos - 1, false), (nanos, true)] {
                    assert_eq!(takes_at(&format!("after {text}"), time), is_after, "{text}");
                    assert_eq!(takes_at(&format!("before {text}"), time), !is_after, "{text}");
                }
            }
        }
        assert_eq!(
            ["1.5m", "0.5h", "7ns"].map(time),
            [90_000_000_000, 1_800_000_000_000, 7].map(|nanos| Some(Duration::from_nanos(nanos)))
        );
    }

    #[test]
    fn packets_of_ipv6_have_ports_and_others_have_no_term_of_packets() {
        let network = Network::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let frame = TcpFrame { network, dst_port: 443, ..TcpFrame::default() }.build();
        let mut filter: Filter = "ip6 and tcp and port 443 and host ::1 and net ::/64".parse().unwrap();
        assert!(filter.takes(&record(0), &frame));
        assert!(!filter.takes(&record(0), &[7; 60]));
        assert!("not tcp".parse::<Filter>().unwrap().takes(&record(0), &[7; 60]));
    }

    /// Returns an IPv6 packet with a UDP header behind this extension header. Behind a later fragment's, the
    /// bytes of `ports` are payload.
    fn udp_behind(extension: [u8; 8], protocol: IpProtocol, ports: [u16; 2]) -> Vec<u8> {
        let [src, dst] = ports.map(u16::to_be_bytes);
        let udp = [&src[..], &dst, &508u16.to_be_bytes(), &[0; 502]].concat();
        let ip = [&[0x60, 0, 0, 0][..], &516u16.to_be_bytes(), &[protocol.0, 64], &[0; 32]].concat();
        [&[0; 12][..], &[0x86, 0xDD], &ip, &extension, &udp].concat()
    }

    #[test]
    fn extension_headers_of_ipv6_are_passed_over_also_in_packets_that_were_cut() {
        const UDP: u8 = IpProtocol::UDP.0;
        let hop_by_hop = udp_behind([UDP, 0, 1, 4, 0, 0, 0, 0], IpProtocol::HOP_BY_HOP, [1000, 2000]);
        let first = udp_behind([UDP, 0, 0, 1, 0, 0, 0, 7], IpProtocol::FRAGMENT, [1000, 2000]);
        let later = udp_behind([UDP, 0, 2, 0, 0, 0, 0, 7], IpProtocol::FRAGMENT, [80, 80]);
        for (packet, has_ports) in [(hop_by_hop, true), (first, true), (later, false)] {
            for len in [packet.len(), 96] {
                let takes =
                    |filter: &str| filter.parse::<Filter>().unwrap().takes(&record(0), &packet[..len]);
                assert!(takes("ip6 and udp"), "{len}");
                assert_eq!((takes("port 2000"), takes("port 80")), (has_ports, false), "{len}");
            }
        }
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, word) in [
            ("", "the filter is empty: expected tcp, udp,"),
            (" ", "the filter is empty"),
            ("tcp udp", "'and' is missing before 'udp'"),
            ("port 80 or port 443", "'and' is missing before 'or'"),
            ("host ::1 port 80", "'and' is missing before 'port'"),
            ("tcp port x", "'port' needs a number"),
            ("tcp and", "a term is missing at the end"),
            ("not", "a term is missing at the end"),
            ("prot 80", "'prot' is not a term"),
            ("port x", "'port' needs a number from 0 to 65535, not 'x'"),
            ("host", "'host' needs an IP address behind it"),
            ("net 10.0.0.0/33", "'net' needs"),
            ("after 5", "'after' needs a time"),
            ("after -5s", "'after' needs a time"),
            ("after 0.5ns", "'after' needs a time"),
        ] {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
