//! The messages of Linux's rxe, from a capture, with our identifiers in place of the recorded ones: they make
//! and end connections.

use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;

use nichrome_cm::{
    Bearer, Config, ConnectionParameters, EventKind, IdName, Input, Manager, Output, OwnAddresses,
    Parameters, Route, Transmit,
};
use nichrome_rdma::QpType;
use nichrome_wire::cm::{CommId, Ece, Guid, Mad, Message, PortSpace};
use nichrome_wire::rdma::{PathMtu, QpNumber};
use nichrome_wire::{Engine, Instant};
use pcap_file::pcap::PcapReader;

/// The first connection of the capture: its messages with their sources.
fn conversation() -> Vec<(IpAddr, Mad)> {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/rxe-verbs.pcap"));
    let mut reader = PcapReader::new(File::open(file).unwrap()).unwrap();
    let mut mads = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data;
        // Ethernet, IPv4, UDP, base and datagram headers; the destination is queue pair 1.
        if frame.len() > 62 && frame[36..38] == 4791u16.to_be_bytes() && frame[47..50] == [0, 0, 1] {
            let source = IpAddr::from(<[u8; 4]>::try_from(&frame[26..30]).unwrap());
            mads.push((source, Mad::parse(&frame[62..frame.len() - 4]).unwrap()));
        }
    }
    mads
}

fn first(kind: impl Fn(&Message) -> bool) -> (IpAddr, Mad) {
    conversation().into_iter().find(|(_, mad)| kind(&mad.message)).unwrap()
}

fn manager(address: IpAddr) -> Manager<OwnAddresses> {
    Manager::new(Config::new(Bearer::Roce, Guid(1), 1), OwnAddresses(vec![address])).unwrap()
}

/// The only message that a manager sends now.
fn sent(manager: &mut Manager<OwnAddresses>) -> Mad {
    let mut mads = Vec::new();
    while let Some(output) = manager.poll() {
        if let Output::Transmit(transmit) = output {
            let Transmit { payload, .. } = *transmit;
            mads.push(Mad::parse(&payload).unwrap());
        }
    }
    assert_eq!(mads.len(), 1, "{mads:?}");
    mads.remove(0)
}

fn arrive(manager: &mut Manager<OwnAddresses>, source: IpAddr, destination: IpAddr, mad: &Mad) {
    let payload = mad.to_bytes().to_vec();
    manager.receive(Input::Datagram { source, destination, payload }, Instant::ZERO);
}

fn parameters(qp: u32) -> ConnectionParameters {
    ConnectionParameters { qp: QpNumber::new(qp).unwrap(), ..ConnectionParameters::default() }
}

#[test]
fn rxe_connects_to_our_listener() {
    let (peer, request) = first(|message| matches!(message, Message::Req(_)));
    let Message::Req(req) = request.message else { panic!() };
    let own = IpAddr::from(req.primary.remote_gid);
    let mut manager = manager(own);
    let channel = manager.create_channel().unwrap();
    let listener = manager.create_id(channel, 1, PortSpace::Tcp, QpType::Rc).unwrap();
    let port = req.service.port().unwrap().1;
    manager.bind(listener, (own, port).into()).unwrap();
    manager.listen(listener, 0).unwrap();
    arrive(&mut manager, peer, own, &request);
    let event = manager.get_event(channel).unwrap().unwrap();
    let Parameters::Connection(asked) = &event.parameters else { panic!() };
    assert_eq!((event.kind, asked.qp, asked.retry_count), (EventKind::ConnectRequest, req.qp, 7));
    let server = IdName(event.id);
    while manager.poll().is_some() {}
    manager.accept(server, 2, &parameters(0x22), Ece::default(), Instant::ZERO).unwrap();
    let reply = sent(&mut manager);
    let Message::Rep(rep) = reply.message else { panic!() };
    assert_eq!((reply.transaction, rep.ids.remote), (request.transaction, req.local));
    let (_, mut ready) = first(|message| matches!(message, Message::Rtu(_)));
    let Message::Rtu(rtu) = &mut ready.message else { panic!() };
    assert_eq!(rtu.ids.local, req.local);
    rtu.ids.remote = rep.ids.local;
    arrive(&mut manager, peer, own, &ready);
    assert_eq!(manager.get_event(channel).unwrap().unwrap().kind, EventKind::Established);
    // The DREQ of the same connection.
    let of_connection =
        |message: &Message| matches!(message, Message::Dreq(dreq) if dreq.ids.local == req.local);
    let (_, mut end) = first(of_connection);
    let Message::Dreq(dreq) = &mut end.message else { panic!() };
    dreq.ids.remote = rep.ids.local;
    dreq.remote_qp = QpNumber::new(0x22).unwrap();
    while manager.poll().is_some() {}
    arrive(&mut manager, peer, own, &end);
    assert_eq!(manager.get_event(channel).unwrap().unwrap().kind, EventKind::Disconnected);
    let answer = sent(&mut manager);
    let Message::Drep(drep) = answer.message else { panic!() };
    assert_eq!((answer.transaction, drep.ids.remote), (end.transaction, req.local));
}

#[test]
fn we_connect_to_a_listener_of_rxe() {
    let (peer, mut reply) = first(|message| matches!(message, Message::Rep(_)));
    let (own, _) = first(|message| matches!(message, Message::Req(_)));
    let mut manager = manager(own);
    let channel = manager.create_channel().unwrap();
    let client = manager.create_id(channel, 1, PortSpace::Tcp, QpType::Rc).unwrap();
    manager.resolve_address(client, None, (peer, 7174).into(), 1000, Instant::ZERO).unwrap();
    let Some(Output::ResolveAddress { query, .. }) = manager.poll() else { panic!() };
    manager.receive(Input::AddressResolved(query, Ok(own)), Instant::ZERO);
    while manager.poll().is_some() {}
    manager.resolve_route(client, 1000, Instant::ZERO).unwrap();
    let Some(Output::ResolveRoute { query, .. }) = manager.poll() else { panic!() };
    let route = Route { path_mtu: PathMtu::B1024, hop_limit: 64 };
    manager.receive(Input::RouteResolved(query, Ok(route)), Instant::ZERO);
    manager.connect(client, &parameters(0x11), Ece::default(), Instant::ZERO).unwrap();
    let Message::Req(req) = sent(&mut manager).message else { panic!() };
    while manager.get_event(channel).unwrap().is_some() {}
    let Message::Rep(rep) = &mut reply.message else { panic!() };
    rep.ids.remote = req.local;
    let theirs = (rep.ids.local, rep.qp);
    arrive(&mut manager, peer, own, &reply);
    let event = manager.get_event(channel).unwrap().unwrap();
    let Parameters::Connection(response) = &event.parameters else { panic!() };
    assert_eq!((event.kind, response.qp), (EventKind::ConnectResponse, theirs.1));
    while manager.poll().is_some() {}
    manager.establish(client, Instant::ZERO).unwrap();
    let Message::Rtu(rtu) = sent(&mut manager).message else { panic!() };
    assert_eq!((rtu.ids.remote, rtu.ids.local), (theirs.0, req.local));
    assert_ne!(rtu.ids.local, CommId::NONE);
}
