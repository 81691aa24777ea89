//! Any bytes as a RoCE packet.
#![no_main]

use nichrome_wire::AddressPair;
use nichrome_wire::rdma::{DatagramWriter, IcrcCheck, IcrcChecker, Repr, UdpFlow};

const V4: AddressPair =
    AddressPair::V4 { src: std::net::Ipv4Addr::new(10, 0, 0, 1), dst: std::net::Ipv4Addr::new(10, 0, 0, 2) };
const V6: AddressPair =
    AddressPair::V6 { src: std::net::Ipv6Addr::LOCALHOST, dst: std::net::Ipv6Addr::LOCALHOST };

libfuzzer_sys::fuzz_target!(|datagram: &[u8]| {
    for addresses in [V4, V6] {
        let flow = UdpFlow::to_roce(addresses, 0xC000);
        let _ = IcrcChecker::default().check(&flow, datagram);
        a_rebuilt_datagram_parses_to_the_same(&flow, datagram);
    }
});

fn a_rebuilt_datagram_parses_to_the_same(flow: &UdpFlow, datagram: &[u8]) {
    let Ok((repr, payload)) = Repr::parse(datagram) else { return };
    assert_eq!(repr.datagram_len(payload.len()), datagram.len());
    let mut built = vec![0xA5; datagram.len()];
    let Some(mut writer) = DatagramWriter::new(&repr, payload.len(), flow, 0, &mut built) else { return };
    writer.payload().copy_from_slice(payload);
    assert_eq!(writer.finish(), built.len());
    assert_eq!(Repr::parse(&built), Ok((repr, payload)));
    assert_eq!(IcrcChecker::default().check(flow, &built), IcrcCheck::Valid);
}
