//! Connections per second of the engine: two managers exchange REQ, REP, RTU, DREQ and DREP, without a
//! network.
//!
//! `cargo bench -p nichrome-cm --bench connections` prints the median rate, with the work of both ends, by
//! the number of other connections that are established.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::net::{IpAddr, SocketAddr};
use std::time::Instant as Clock;

use nichrome_cm::{
    Bearer, ChannelName, Config, ConnectionParameters, Event, IdName, Input, Manager, Output, OwnAddresses,
    Route,
};
use nichrome_rdma::QpType;
use nichrome_wire::cm::{Ece, Guid, PortSpace};
use nichrome_wire::rdma::{PathMtu, QpNumber};
use nichrome_wire::{Engine, Instant};

const CONNECTIONS: u32 = 2000;
const ROUNDS: usize = 15;
const STANDING: [u32; 3] = [0, 1000, 10_000];

/// A manager, its channel and address.
struct End {
    manager: Manager<OwnAddresses>,
    channel: ChannelName,
    address: IpAddr,
}

impl End {
    fn new(last: u8) -> Self {
        let address = IpAddr::from([10, 0, 0, last]);
        let config = Config::new(Bearer::Roce, Guid(last.into()), last.into());
        let mut manager = Manager::new(config, OwnAddresses(vec![address])).unwrap();
        let channel = manager.create_channel().unwrap();
        Self { manager, channel, address }
    }

    fn event(&mut self) -> Event {
        self.manager.get_event(self.channel).unwrap().unwrap()
    }
}

/// Carries datagrams and answers questions until both managers are idle.
fn exchange(ends: &mut [End; 2], now: Instant) {
    loop {
        let mut is_idle = true;
        for n in 0..2 {
            while let Some(output) = ends[n].manager.poll() {
                is_idle = false;
                match output {
                    Output::Transmit(transmit) => {
                        let payload = transmit.payload.to_vec();
                        let (source, destination) = (transmit.source, transmit.destination);
                        ends[1 - n].manager.receive(Input::Datagram { source, destination, payload }, now);
                    }
                    Output::ResolveAddress { query, .. } => {
                        let address = ends[n].address;
                        ends[n].manager.receive(Input::AddressResolved(query, Ok(address)), now);
                    }
                    Output::ResolveRoute { query, .. } => {
                        let route = Route { path_mtu: PathMtu::B1024, hop_limit: 64 };
                        ends[n].manager.receive(Input::RouteResolved(query, Ok(route)), now);
                    }
                    _ => {}
                }
            }
        }
        if is_idle {
            return;
        }
    }
}

fn parameters(qp: u32) -> ConnectionParameters {
    ConnectionParameters { qp: QpNumber::new(qp).unwrap(), ..ConnectionParameters::default() }
}

/// Makes a connection; returns its identifiers.
fn connect(ends: &mut [End; 2], qp: u32, now: Instant) -> [IdName; 2] {
    let channel = ends[0].channel;
    let destination = SocketAddr::new(ends[1].address, 7);
    let client = ends[0].manager.create_id(channel, 1, PortSpace::Tcp, QpType::Rc).unwrap();
    ends[0].manager.resolve_address(client, None, destination, 1000, now).unwrap();
    exchange(ends, now);
    ends[0].manager.resolve_route(client, 1000, now).unwrap();
    exchange(ends, now);
    let _ = [ends[0].event(), ends[0].event()];
    ends[0].manager.connect(client, &parameters(qp), Ece::default(), now).unwrap();
    exchange(ends, now);
    let server = IdName(ends[1].event().id);
    ends[1].manager.accept(server, 2, &parameters(qp), Ece::default(), now).unwrap();
    exchange(ends, now);
    ends[0].event();
    ends[0].manager.establish(client, now).unwrap();
    exchange(ends, now);
    ends[1].event();
    [client, server]
}

fn disconnect(ends: &mut [End; 2], [client, server]: [IdName; 2], now: Instant) {
    ends[0].manager.disconnect(client, now).unwrap();
    exchange(ends, now);
    let _ = [ends[0].event(), ends[1].event()];
    ends[0].manager.destroy_id(client, now).unwrap();
    ends[1].manager.destroy_id(server, now).unwrap();
    exchange(ends, now);
}

fn main() {
    println!("{:>9} {:>16}", "standing", "connections/s");
    for standing in STANDING {
        let mut ends = [End::new(1), End::new(2)];
        let channel = ends[1].channel;
        let listener = ends[1].manager.create_id(channel, 3, PortSpace::Tcp, QpType::Rc).unwrap();
        let local = SocketAddr::new(ends[1].address, 7);
        ends[1].manager.bind(listener, local).unwrap();
        ends[1].manager.listen(listener, 0).unwrap();
        let mut now = Instant::ZERO;
        for n in 0..standing {
            connect(&mut ends, 0x10_0000 + n, now);
        }
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            let start = Clock::now();
            for n in 0..CONNECTIONS {
                let pair = connect(&mut ends, 0x100 + n, now);
                disconnect(&mut ends, pair, now);
            }
            rates.push(f64::from(CONNECTIONS) / start.elapsed().as_secs_f64());
            // Both managers forget the ends of these connections.
            now = now.plus_nanos(10_000_000_000);
            ends.iter_mut().for_each(|end| end.manager.handle_timeout(now));
            exchange(&mut ends, now);
        }
        rates.sort_unstable_by(f64::total_cmp);
        println!("{standing:>9} {:>16.0}", rates[rates.len() / 2]);
    }
}
