//! The driver's sleep, and set-ups that the program ends.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};

use nichrome_rdma::{QpCapacity, QpConfig, QpNumber, QpType, Signaling};
use nichrome_wire::star::STAR_PORT;

use super::*;
use crate::Arena;
use crate::testing::{TERMS, to_receive_from};

#[test]
fn a_program_looks_before_it_waits_if_its_last_wait_was_short() {
    let driver = Driver::open(&AdapterConfig::default(), Arena::default(), Box::new(drop)).unwrap();
    let (impatient, patient) = (PollTime::default(), PollTime::default());
    patient.waited(0);
    assert!(driver.poll_before_wait(&impatient, || unreachable!("it does not look")).is_some());
    assert_eq!(driver.poll_before_wait(&patient, || true), None);
    assert!(driver.poll_before_wait(&patient, || false).is_some());
}

/// A driver with a queue pair.
struct Side {
    driver: Driver<Arena>,
    qp: QpHandle,
    number: QpNumber,
}

impl Side {
    fn new(transport: Transport) -> Self {
        let config = AdapterConfig { transport, ..AdapterConfig::default() };
        let driver = Driver::open(&config, Arena::default(), Box::new(drop)).unwrap();
        let (qp, number) = driver.call(|device| {
            let (domain, cq) = (device.create_domain().unwrap(), device.create_cq(1).unwrap());
            let (kind, capacity) = (QpType::Rc, QpCapacity::default());
            let signaling = Signaling::Requested;
            let config =
                QpConfig { kind, domain, send_cq: cq, receive_cq: cq, srq: None, capacity, signaling };
            let qp = device.create_qp(config).unwrap();
            (qp, device.qp_number(qp).unwrap())
        });
        Self { driver, qp, number }
    }

    /// Two sides, the one that connects first: its address is lower.
    fn pair(transport: Transport) -> [Self; 2] {
        let mut sides = [(); 2].map(|()| Self::new(transport));
        sides.sort_by_key(|side| side.driver.local().ip());
        sides
    }

    fn reset(&self) {
        self.driver.modify_qp(self.qp, &QpChange::to(QpState::Reset)).unwrap();
    }

    /// Moves the queue pair to RTR, which starts the set-up.
    fn connect(&self, peer: IpAddr, number: QpNumber) {
        for change in to_receive_from(peer, number) {
            self.driver.modify_qp(self.qp, &change).unwrap();
        }
    }

    fn connect_to(&self, peer: &Self) {
        self.connect(peer.driver.local().ip(), peer.number);
    }

    /// Waits until no connection is being set up; returns the queue pair's state.
    fn settled(&self) -> QpState {
        while self.driver.held_qps() > 0 {
            thread::yield_now();
        }
        self.driver.call(|device| device.query_qp(self.qp).unwrap().state)
    }
}

const SET_UPS: [Transport; 2] = [Transport::Iwarp, Transport::Star];

/// A peer at a higher address than any adapter's, which accepts connections and never answers.
fn silent_peer(transport: Transport, number: QpNumber) -> (TcpListener, IpAddr) {
    let port = if transport == Transport::Star { STAR_PORT } else { iwarp::port_of(number) };
    // Other tests run such peers at the same time: takes the first free address.
    let mut addresses = (1..=254).rev().map(|host| IpAddr::from([127, 255, 255, host]));
    let listening = |address| Some((TcpListener::bind((address, port)).ok()?, address));
    addresses.find_map(listening).unwrap()
}

#[test]
fn a_queue_pair_that_was_reset_keeps_its_next_connection() {
    for transport in SET_UPS {
        let [a, b] = Side::pair(transport);
        let (listener, silent) = silent_peer(transport, a.number);
        a.connect(silent, a.number);
        let (mut unanswered, _) = listener.accept().unwrap();
        a.reset();
        assert_eq!(a.driver.held_qps(), 0, "{transport:?}");
        // The stream ends, by a reset or after a refusal: a late answer reaches nobody.
        unanswered.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let end = unanswered.read_to_end(&mut Vec::new());
        assert!(end.is_ok() || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
        a.connect_to(&b);
        b.connect_to(&a);
        assert_eq!([&a, &b].map(Side::settled), [QpState::Rtr; 2], "{transport:?}");
    }
}

#[test]
fn a_queue_pair_that_was_reset_is_connected_to_the_same_peer_again() {
    for transport in SET_UPS {
        let [a, b] = Side::pair(transport);
        for round in 0..20 {
            // The side that gives up is the one that connects, or the one that expects its peer.
            let [first, second] = if round % 2 == 0 { [&a, &b] } else { [&b, &a] };
            first.connect_to(second);
            first.reset();
            first.connect_to(second);
            second.connect_to(first);
            let states = [first, second].map(Side::settled);
            assert_eq!(states, [QpState::Rtr; 2], "{transport:?}, round {round}");
            [first, second].into_iter().for_each(Side::reset);
        }
    }
}

#[test]
fn the_set_up_of_a_destroyed_queue_pair_ends() {
    for transport in SET_UPS {
        let [a, b] = Side::pair(transport);
        let (_listener, silent) = silent_peer(transport, a.number);
        a.connect(silent, a.number);
        // Here the peer is the side that connects.
        b.connect_to(&a);
        for side in [a, b] {
            assert_eq!(side.driver.held_qps(), 1, "{transport:?}");
            side.driver.destroy_qp(side.qp).unwrap();
            assert_eq!(side.driver.held_qps(), 0, "{transport:?}");
        }
    }
}

/// No other event wakes the thread.
#[test]
fn the_thread_drops_the_stream_of_a_queue_pair_whose_peer_does_not_close() {
    let leave: [fn(&Side); 2] = [Side::reset, |side| side.driver.destroy_qp(side.qp).unwrap()];
    for leave in leave {
        let side = Side::new(Transport::Iwarp);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        side.driver.modify_qp(side.qp, &QpChange::to(QpState::Init)).unwrap();
        side.driver.attach(side.qp, &TERMS, ConnectedStream::new(socket, Vec::new(), Vec::new())).unwrap();
        let is_closing = || side.driver.shared.live().wire.outgoing_timeout().is_some();
        thread::sleep(Duration::from_millis(50));
        let left = clock::now();
        leave(&side);
        // The stream stays for 1 s, which may have passed.
        assert!(is_closing() || clock::now() >= left + Duration::from_secs(1));
        let until = clock::now() + Duration::from_secs(10);
        while is_closing() {
            assert!(clock::now() < until);
            thread::sleep(Duration::from_millis(10));
        }
    }
}
