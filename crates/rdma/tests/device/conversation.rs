//! Delayed ACKs, which wait for the program's answer.

use crate::common::{Link, Pair};
use nichrome_rdma::*;
use nichrome_wire::rdma::{Message, RcMessage, Repr};

const DELAY: u64 = 60_000;

/// The resolution of the timers, in nanoseconds.
const TURN: u64 = 8192;

struct Talk {
    pair: Pair,
    qps: [QpHandle; 2],
}

impl Talk {
    fn new() -> Self {
        let mut pair = Pair::with(|config| config.roce.acknowledgement_delay = DELAY);
        // The only timer is that of the delayed ACK.
        let qps = pair.connect(QpType::Rc, &Link { timeout: 0, ..Link::default() });
        pair.record = true;
        Self { pair, qps }
    }

    fn write(&mut self, end: usize) {
        let there = self.pair.ends[1 - end].remote(0);
        self.pair.ends[end].post(self.qps[end], 0, Operation::Write(there), 0, 8);
        self.pair.transmit();
    }

    /// Returns a pair whose programs have answered each other.
    fn warmed_up() -> Self {
        let mut talk = Self::new();
        for end in [0, 1, 0, 1] {
            talk.write(end);
            talk.pair.run_for(20_000);
        }
        talk.pair.run();
        talk.pair.sent.clear();
        talk
    }

    /// For each packet sent since the last call, whether it is an acknowledgement.
    fn acknowledgements(&mut self) -> Vec<bool> {
        let is_acknowledgement = |(_, bytes): &(usize, Vec<u8>)| {
            matches!(Repr::parse(bytes).unwrap().0.message, Message::Rc(RcMessage::Acknowledge(_)))
        };
        self.pair.sent.drain(..).map(|sent| is_acknowledgement(&sent)).collect()
    }

    /// Posts a WRITE at end 0 that end 1 does not answer; returns the nanoseconds until it completes.
    fn unanswered(&mut self) -> u64 {
        self.pair.ends[0].completions();
        let start = self.pair.now.as_nanos();
        self.write(0);
        self.pair.run();
        let [done] = self.pair.ends[0].completions()[..] else { panic!() };
        done.at.as_nanos() - start
    }
}

#[test]
fn a_program_that_does_not_answer_is_not_waited_for() {
    let mut talk = Talk::new();
    for _ in 0..3 {
        assert_eq!(talk.unanswered(), 2 * talk.pair.delay);
        assert_eq!(talk.acknowledgements(), [false, true]);
    }
}

#[test]
fn in_a_conversation_it_leaves_right_behind_the_answer() {
    let mut talk = Talk::warmed_up();
    talk.write(0);
    talk.pair.run_for(15_000);
    assert_eq!(talk.acknowledgements(), [false], "the acknowledgement waits");
    let there = talk.pair.ends[0].remote(0);
    talk.pair.ends[1].post(talk.qps[1], 0, Operation::Write(there), 0, 8);
    let mut buffer = vec![0; 10_000];
    let now = talk.pair.now;
    let sent = talk.pair.ends[1].device.poll_transmit(now, 16, &mut buffer).unwrap().datagrams().unwrap();
    let lengths: Vec<usize> = sent.datagrams(&buffer).map(<[u8]>::len).collect();
    assert_eq!(lengths, [40, 20], "the answer, then the acknowledgement");
    assert!(talk.pair.ends[1].device.poll_transmit(now, 16, &mut buffer).is_none());
    for bytes in sent.datagrams(&buffer) {
        let (repr, _) = Repr::parse(bytes).unwrap();
        assert_eq!(matches!(repr.message, Message::Rc(RcMessage::Acknowledge(_))), bytes.len() == 20);
    }
}

#[test]
fn a_program_that_falls_silent_is_waited_for_once_and_not_long() {
    let mut talk = Talk::warmed_up();
    let expected = 2 * talk.pair.delay + DELAY;
    let took = talk.unanswered();
    assert!((expected..expected + 2 * TURN).contains(&took), "{took}");
    assert_eq!(talk.unanswered(), 2 * talk.pair.delay);
}

#[test]
fn retransmissions_are_acknowledged_at_once() {
    let mut talk = Talk::warmed_up();
    talk.write(0);
    let (_, again) = talk.pair.sent[0].clone();
    talk.pair.run_for(15_000);
    talk.pair.inject(1, &again);
    talk.pair.transmit();
    assert_eq!(talk.acknowledgements(), [false, true]);
}

#[test]
fn a_delayed_ack_leaves_before_its_queue_pair_is_destroyed() {
    for all in [false, true] {
        let mut talk = Talk::warmed_up();
        talk.pair.ends[0].completions();
        talk.write(0);
        talk.pair.run_for(15_000);
        let device = &mut talk.pair.ends[1].device;
        if all {
            device.acknowledge_all();
        } else {
            device.acknowledge(talk.qps[1]);
        }
        talk.pair.transmit();
        talk.pair.ends[1].device.destroy_qp(talk.qps[1]).unwrap();
        talk.pair.run();
        assert_eq!(talk.pair.ends[0].completions().len(), 1);
    }
}
