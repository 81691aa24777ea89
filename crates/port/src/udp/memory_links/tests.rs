//! Links between the addresses of one process, and peers that send invalid data.

use crate::clock;

use super::*;

/// Creates links at an address of their own, which need not be bound. Other processes that run these tests
/// use other addresses.
fn links(nth: u8) -> (MemoryLinks, SocketAddr) {
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = SocketAddr::from(([127, 64 | high & 63, low, nth], 4791));
    (MemoryLinks::listen(address, Some(3)).unwrap(), address)
}

fn send(from: &mut MemoryLinks, to: SocketAddr, bytes: &[u8]) -> LinkSend {
    from.send((to, 3), TrafficClass(7), (bytes, 1000), clock::now())
}

/// Connects as a process that may send anything.
fn connection(to: SocketAddr) -> Descriptor {
    let connection = Descriptor::from(unix_socket(SocketType::SEQPACKET).unwrap());
    connect_to(&connection, &socket_name(to, Some(3))).unwrap();
    connection
}

/// Connects and passes a ring; returns its writer.
fn ring_at(to: SocketAddr) -> (Descriptor, RingWriter) {
    let (connection, ring) = (connection(to), RingWriter::create().unwrap());
    send_descriptors(&connection, b"127.0.0.9:4791", &[ring.descriptor()]).unwrap();
    (connection, ring)
}

/// Returns the datagrams that one call receives, with their senders.
fn received(links: &mut MemoryLinks) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut all = vec![];
    links.receive(|arrival| {
        assert_eq!(arrival.traffic_class, TrafficClass(7));
        all.extend(arrival.datagrams().map(|bytes| (arrival.peer, bytes.to_vec())));
    });
    all
}

fn is_readable(links: &MemoryLinks) -> bool {
    clock::wait([links.as_fd()], Some(Instant::ZERO)) == Ok([true])
}

/// Receives until nothing is pending; returns all datagrams.
fn drain(links: &mut MemoryLinks) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut all = vec![];
    for _ in 0..10 * IDLE_CALLS {
        all.extend(received(links));
    }
    assert!(!is_readable(links), "the set keeps waking");
    all
}

#[test]
fn datagrams_arrive_with_their_sender_and_wake_the_receiver_whenever_it_rests() {
    let ((mut from, sender), (mut to, receiver)) = (links(1), links(2));
    assert!(!is_readable(&to));
    for round in 0..3 {
        let message: Vec<u8> = (0..2500).map(|at| (at + round) as u8).collect();
        assert_eq!(send(&mut from, receiver, &message), LinkSend::Sent);
        assert!(is_readable(&to));
        let datagrams = message.chunks(1000).map(|bytes| (sender, bytes.to_vec()));
        assert_eq!(drain(&mut to), datagrams.collect::<Vec<_>>());
    }
}

#[test]
fn a_process_whose_name_is_taken_sends_by_links_and_receives_through_sockets() {
    let (_taken, own) = links(90);
    let mut without = MemoryLinks::listen(own, Some(3)).unwrap();
    let ((mut other, sender), mut got) = (links(91), vec![]);
    assert_eq!(send(&mut without, sender, &[1]), LinkSend::Sent);
    for _ in 0..10 * IDLE_CALLS {
        got.extend(received(&mut other));
        received(&mut without);
    }
    assert_eq!(got, [(own, vec![1])]);
    assert!(!is_readable(&without));
}

#[test]
fn nobody_is_asked_again_only_after_a_time() {
    let ((mut from, _), (to, receiver)) = (links(3), links(4));
    drop(to);
    let now = clock::now();
    let mut ask = |now| from.send((receiver, 3), TrafficClass(7), (&[1], 1), now);
    assert_eq!(ask(now), LinkSend::NoLink);
    let _to = links(4);
    assert_eq!(ask(now + RETRY_AFTER / 2), LinkSend::NoLink);
    assert_eq!(ask(now + RETRY_AFTER), LinkSend::Sent);
}

#[test]
fn what_was_sent_before_the_sender_ended_is_received_and_its_link_ends() {
    let ((mut from, _), (mut to, receiver)) = (links(5), links(6));
    assert_eq!(send(&mut from, receiver, &[1]), LinkSend::Sent);
    drop(from);
    assert_eq!(drain(&mut to).len(), 1);
    assert!(to.incoming.is_empty());
    let (mut from, _) = links(5);
    assert_eq!(send(&mut from, receiver, &[1]), LinkSend::Sent);
    drop(to);
    drain(&mut from);
    assert!(!from.has_outgoing());
    assert_eq!(send(&mut from, receiver, &[1]), LinkSend::NoLink);
}

/// A forked child has all descriptors. Copies within the process keep an epoll's registration, too.
#[test]
fn links_that_have_ended_do_not_wake_where_a_forked_child_has_their_descriptors() {
    let ((mut from, _), (mut to, receiver)) = (links(81), links(82));
    let copy_of = |links: &MemoryLinks| match &links.outgoing[&(receiver, 3)] {
        Outgoing::Link(link) => link.connection.as_fd().try_clone_to_owned().unwrap(),
        Outgoing::Unreachable { .. } => panic!("no link"),
    };
    // Incoming: the writer closes its end.
    assert_eq!(send(&mut from, receiver, &[1]), LinkSend::Sent);
    assert_eq!(drain(&mut to).len(), 1);
    let _incoming = to.incoming[0].connection.as_fd().try_clone_to_owned().unwrap();
    drop(from);
    drain(&mut to);
    // Incoming: the ring is corrupt.
    let writer = ring_at(receiver);
    drain(&mut to);
    let _corrupt = to.incoming[0].connection.as_fd().try_clone_to_owned().unwrap();
    to.incoming[0].is_corrupt = true;
    drop(writer);
    drain(&mut to);
    // The first message is invalid.
    let wrong = connection(receiver);
    drain(&mut to);
    let _greeting = to.greetings[0].as_fd().try_clone_to_owned().unwrap();
    send_wake_up(&wrong).unwrap();
    drop(wrong);
    drain(&mut to);
    assert!(to.greetings.is_empty() && to.incoming.is_empty());
    // Outgoing: the reader makes no progress.
    let (mut from, _) = links(83);
    let (message, start) = (vec![0; MAX_MESSAGE], clock::now());
    let mut at = |time: Duration| from.send((receiver, 3), TrafficClass(7), (&message, 1024), start + time);
    while at(Duration::ZERO) == LinkSend::Sent {}
    let _slow = copy_of(&from);
    assert_eq!(
        from.send((receiver, 3), TrafficClass(7), (&message, 1024), start + END_LINK_AFTER),
        LinkSend::NoLink
    );
    // Outgoing: the reader closes its end.
    let (mut other, _) = links(84);
    assert_eq!(send(&mut other, receiver, &[1]), LinkSend::Sent);
    let _closed = copy_of(&other);
    drop(to);
    drain(&mut from);
    drain(&mut other);
}

#[test]
fn a_reader_that_stands_still_costs_its_messages_and_then_the_link() {
    let ((mut from, _), (_to, receiver)) = (links(7), links(8));
    let (message, start) = (vec![0; MAX_MESSAGE], clock::now());
    let mut at = |time: Duration| from.send((receiver, 3), TrafficClass(7), (&message, 1024), start + time);
    while at(Duration::ZERO) == LinkSend::Sent {}
    assert_eq!(at(DROP_AFTER / 2), LinkSend::Full);
    assert_eq!(at(DROP_AFTER), LinkSend::Dropped);
    assert_eq!(at(END_LINK_AFTER), LinkSend::NoLink);
    assert_eq!(at(END_LINK_AFTER), LinkSend::NoLink);
}

#[test]
fn a_connection_that_passes_no_ring_is_closed_and_one_that_says_nothing_holds_nothing_up() {
    let ((mut from, _), (mut to, receiver)) = (links(9), links(10));
    let (silent, wrong, garbage) = (connection(receiver), connection(receiver), connection(receiver));
    send_descriptors(&wrong, b"127.0.0.1:4791", &[silent.as_fd()]).unwrap();
    send_descriptors(&garbage, b"nowhere", &[silent.as_fd()]).unwrap();
    assert_eq!(send(&mut from, receiver, &[1]), LinkSend::Sent);
    assert_eq!(drain(&mut to).len(), 1);
    assert!(has_closed(&wrong) && has_closed(&garbage) && !has_closed(&silent));
}

#[test]
fn neither_end_is_held_up_by_wake_ups_that_pile_up_or_make_no_sense() {
    let ((mut from, _), (mut to, receiver)) = (links(11), links(12));
    let (flood, mut ring) = ring_at(receiver);
    drain(&mut to);
    assert_eq!(to.incoming.len(), 1);
    while send_wake_up(&flood).is_ok() {}
    assert!(ring.push(&[1], 1, 7).is_ok());
    // One call takes only a few of the wake-ups, and still receives the message.
    assert_eq!(received(&mut to).len(), 1);
    let has_rest = (0..IDLE_CALLS).all(|_| received(&mut to).is_empty()) && is_readable(&to);
    assert!(has_rest, "one look took all wake-ups");
    assert_eq!(send(&mut from, receiver, &[2]), LinkSend::Sent);
    let mut all = vec![];
    for _ in 0..100_000 {
        all.extend(received(&mut to));
    }
    assert_eq!(all.len(), 1);
    assert!(!is_readable(&to));
}

#[test]
fn a_link_whose_ring_turned_out_corrupt_ends_though_it_looks_empty_later() {
    let (mut to, receiver) = links(13);
    let (connection, mut ring) = ring_at(receiver);
    drain(&mut to);
    ring.corrupt(3);
    assert!(received(&mut to).is_empty());
    ring.corrupt(0);
    drain(&mut to);
    assert!(to.incoming.is_empty() && has_closed(&connection));
}

#[test]
fn links_in_both_directions_are_limited_and_further_peers_have_none() {
    let (mut to, receiver) = links(14);
    let mut held = vec![];
    for _ in 0..=MAX_INCOMING {
        held.push(ring_at(receiver));
        drain(&mut to);
    }
    assert_eq!(to.incoming.len(), MAX_INCOMING);
    assert!(has_closed(&held[MAX_INCOMING].0));
    held.remove(0);
    drain(&mut to);
    held.push(ring_at(receiver));
    drain(&mut to);
    assert_eq!(to.incoming.len(), MAX_INCOMING);

    let (mut from, _) = links(15);
    let peers: Vec<_> = (16..).map(links).take(MAX_OUTGOING + 1).collect();
    let sent: Vec<_> = peers.iter().map(|(_, peer)| send(&mut from, *peer, &[1])).collect();
    assert!(sent[..MAX_OUTGOING].iter().all(|sent| *sent == LinkSend::Sent));
    assert_eq!(sent[MAX_OUTGOING], LinkSend::NoLink);
}
