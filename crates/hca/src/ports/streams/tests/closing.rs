//! Queue pairs that leave their streams.

use super::*;

#[test]
fn a_queue_pair_that_leaves_its_stream_loses_no_byte_that_it_sent() {
    let mut bench = Bench::new(None);
    let qp = handles(1)[0];
    let mut peer = bench.attach(qp);
    // Unread bytes would make the kernel reset the connection when its socket is closed.
    peer.write_all(&[7; 1000]).unwrap();
    let blocks: Vec<Vec<u8>> = (0..100).map(|nth| frame(nth, 50_000)).collect();
    for block in &blocks {
        bench.device.send(qp, block.clone());
    }
    bench.device.outgoing.push_back(Outgoing::Finish(qp));
    let expected = blocks.concat();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all == expected
    });
    bench.until(|bench| bench.ports.streams.is_empty());
    assert!(reader.join().unwrap() && bench.device.ended.is_empty());
}

#[test]
fn a_queue_pair_that_leaves_its_stream_waits_for_a_peer_that_is_slow_to_read() {
    let delay = Duration::from_millis(1100);
    let impairments = Impairments { delay: "1100ms".parse().unwrap(), ..Impairments::default() };
    for faults in [None, Some(Faults { impairments, seed: 1 })] {
        let mut bench = Bench::new(faults.as_ref());
        let qp = handles(1)[0];
        let mut peer = bench.attach(qp);
        let expected = frame(0, 8 << 20);
        for part in expected.chunks(SEND_LEN) {
            bench.device.send(qp, part.to_vec());
            bench.ports.transmit(&mut bench.device, &mut Capture::default(), clock::now());
        }
        let accepted = expected.len() - bench.device.bytes.iter().map(Vec::len).sum::<usize>();
        let now = clock::now();
        bench.ports.close(qp, now);
        bench.ports.receive(&mut bench.device, &mut Capture::default(), now + delay + 2 * LINGER);
        assert!(bench.ports.has_unsent());
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        bench.until(|bench| bench.ports.streams.is_empty());
        assert!(reader.join().unwrap() == expected[..accepted]);
    }
}

/// If the peer of the old stream never reads, nothing would unblock the queue pair.
#[test]
fn bytes_of_a_stream_that_a_queue_pair_has_left_do_not_block_it_on_its_next_one() {
    let impairments = Impairments { delay: "50ms".parse().unwrap(), ..Impairments::default() };
    let mut bench = Bench::new(Some(&Faults { impairments, seed: 1 }));
    let qp = handles(1)[0];
    let _never_reads = bench.attach(qp);
    (0..200).for_each(|nth| bench.device.send(qp, frame(nth, 60_000)));
    // One time for all calls, so that no chunk is due yet.
    let now = clock::now();
    while !bench.device.outgoing.is_empty() {
        bench.ports.transmit(&mut bench.device, &mut Capture::default(), now);
    }
    assert!(bench.device.blocked.is_empty(), "all bytes are on the impaired path");
    bench.ports.close(qp, now);
    let mut peer = bench.attach(qp);
    bench.until(|bench| bench.ports.streams.values().any(Stream::is_blocked));
    assert!(!bench.device.blocked.contains(&qp));
    bench.device.send(qp, b"next".to_vec());
    peer.set_nonblocking(true).unwrap();
    let mut received = [0; 4];
    bench.until(|_| peer.read_exact(&mut received).is_ok());
    assert_eq!(&received, b"next");
}

#[test]
fn a_peer_that_never_reads_is_given_up() {
    let mut bench = Bench::new(None);
    let qps = handles(2);
    let _peers = [bench.attach(qps[0]), bench.attach(qps[1])];
    (0..200).for_each(|nth| bench.device.send(qps[0], frame(nth, 60_000)));
    bench.until(|bench| bench.device.blocked.contains(&qps[0]));
    let now = clock::now();
    qps.iter().for_each(|qp| bench.ports.close(*qp, now));
    assert_eq!(bench.ports.outgoing_timeout(), Some(now + LINGER), "one has sent its FIN");
    bench.ports.expire(now + LINGER);
    assert_eq!(bench.ports.outgoing_timeout(), Some(now + DRAIN));
    bench.ports.expire(now + DRAIN);
    assert!(bench.ports.streams.is_empty() && bench.ports.outgoing_timeout().is_none());
}

#[test]
fn a_peer_that_does_not_close_is_waited_for_a_second_at_most() {
    let mut bench = Bench::new(None);
    let qp = handles(1)[0];
    let peer = bench.attach(qp);
    bench.ports.close(qp, clock::now());
    assert!(bench.ports.outgoing_timeout().unwrap() <= clock::now() + LINGER);
    bench.until(|bench| bench.ports.streams.is_empty());
    assert_eq!(bench.ports.outgoing_timeout(), None);
    drop(peer);
}

#[test]
fn a_peer_that_has_closed_is_not_waited_for() {
    let mut bench = Bench::new(None);
    bench.by_number = true;
    let qp = handles(1)[0];
    drop(bench.attach(qp));
    bench.until(|bench| bench.ports.ended.len() == 1);
    bench.ports.close(qp, clock::now());
    assert!(bench.ports.streams.is_empty() && bench.ports.outgoing_timeout().is_none());
}
