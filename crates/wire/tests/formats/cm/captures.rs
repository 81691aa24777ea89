//! Every MAD that rxe's connection manager sent parses, and is built again to the same bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;

use nichrome_wire::cm::{
    Gid, IpHeader, Mad, Message, PortSpace, RejectReason, TimeExponent, TransportService,
};
use nichrome_wire::rdma::{PKey, PathMtu};
use pcap_file::pcap::PcapReader;

/// The MADs of the capture, with the address of their sender.
fn mads() -> Vec<(IpAddr, Vec<u8>)> {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/rxe-verbs.pcap"));
    let mut reader = PcapReader::new(File::open(file).unwrap()).unwrap();
    let mut mads = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data;
        // Ethernet, IPv4, UDP, base and datagram headers; the destination is queue pair 1.
        let headers = 14 + 20 + 8;
        if frame.len() >= headers + 20 && frame[36..38] == 4791u16.to_be_bytes() && frame[47..50] == [0, 0, 1]
        {
            let source = IpAddr::from(<[u8; 4]>::try_from(&frame[26..30]).unwrap());
            mads.push((source, frame[headers + 20..frame.len() - 4].to_vec()));
        }
    }
    mads
}

#[test]
fn every_mad_parses_and_is_built_again() {
    let mut seen = BTreeMap::new();
    for (_, bytes) in mads() {
        let mad = Mad::parse(&bytes).unwrap();
        assert_eq!(mad.to_bytes()[..], bytes, "{mad:?}");
        *seen.entry(format!("{:?}", mad.message.attribute())).or_insert(0) += 1;
    }
    let expected = [("Req", 3), ("Rep", 3), ("Rtu", 3), ("Dreq", 4), ("Drep", 4)];
    assert_eq!(seen, expected.map(|(name, count)| (name.to_owned(), count)).into());
}

#[test]
fn the_requests_have_the_fields_of_linux() {
    let mut requests = 0;
    for (source, bytes) in mads() {
        let Message::Req(req) = Mad::parse(&bytes).unwrap().message else { continue };
        requests += 1;
        let (space, port) = req.service.port().unwrap();
        assert!(space == PortSpace::Tcp && port > 1024);
        assert_eq!(
            (req.transport, req.pkey, req.path_mtu),
            (TransportService::Rc, PKey(0xFFFF), PathMtu::B1024)
        );
        assert_eq!((req.remote_timeout, req.local_timeout), (TimeExponent::new(20), TimeExponent::new(20)));
        assert_eq!((req.max_cm_retries, req.retry_count, req.rnr_retry), (15, 7, 7));
        let path = req.primary;
        assert_eq!((path.local_gid, path.hop_limit, path.local_lid), (Gid::from(source), 64, 0xFFFF));
        assert_eq!((path.ack_timeout, path.rate), (TimeExponent::new(19), 0));
        assert_eq!(req.alternate, None);
        let split = IpHeader::split(&req.private_data).unwrap();
        assert_eq!(split.header.source.ip(), source);
        assert_eq!(split.header.destination, IpAddr::from(path.remote_gid));
    }
    assert_eq!(requests, 3);
    assert_eq!(RejectReason::CONSUMER.0, 28);
}
