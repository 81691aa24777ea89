//! Batches for several processes at one address, which have different top bits in their queue pair numbers.

use crate::common::{End, Link, Pair, address, bring_up};
use nichrome_rdma::*;
use nichrome_wire::star::STAR_PORT;

/// The number of a process.
type Slot = u32;

/// Slots of the processes of a test; two queue pairs of each are mixed with those of the others.
const SLOTS: [Slot; 3] = [0, 1, 31];

fn first_number(slot: Slot) -> u32 {
    slot << (24 - STEERING_BITS) | 0x11
}

/// Sends everything that is due; returns the process that each datagram of each batch is for, and whether it
/// is a management datagram, and appends the datagrams to `sent`.
fn send_all(end: &mut End, sent: &mut Vec<(Slot, DatagramBatch, Vec<u8>)>) -> Vec<Vec<(Slot, bool)>> {
    let mut buffer = vec![0; 65_507];
    std::iter::from_fn(|| {
        let Some(Transmit::Datagrams(batch)) = end.device.poll_transmit(Instant::ZERO, 64, &mut buffer)
        else {
            return None;
        };
        let receivers = batch.datagrams(&buffer).map(|bytes| {
            let is_star = batch.route.flow.dst_port == STAR_PORT;
            // RDP, GD and AOP have the server's number in the capability.
            let at = if is_star && [4, 6, 8].contains(&(bytes[0] & 0xF)) { 44 } else { 4 };
            let number = u32::from_be_bytes([0, bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let slot = number >> (24 - STEERING_BITS);
            sent.push((slot, batch, bytes.to_vec()));
            (slot, !is_star && number == 1)
        });
        Some(receivers.collect())
    })
    .collect()
}

/// Asserts that each batch is for one process, that management datagrams leave alone, and that each process
/// gets `count`.
fn assert_separate(batches: &[Vec<(Slot, bool)>], count: usize) {
    for batch in batches {
        assert!(batch.iter().all(|receiver| *receiver == batch[0]), "{batch:?}");
        assert!(!batch[0].1 || batch.len() == 1, "{batch:?}");
    }
    for slot in SLOTS {
        let of_slot = batches.iter().flatten().filter(|receiver| **receiver == (slot, false)).count();
        assert_eq!(of_slot, count, "slot {slot}: {batches:?}");
    }
}

#[test]
fn datagrams_to_several_processes_leave_in_batches_of_their_own() {
    let Pair { ends: [mut end, _], .. } = Pair::new();
    let qp = end.device.create_qp(end.qp_config(QpType::Ud)).unwrap();
    let number = QpNumber::new(first_number(0)).unwrap();
    bring_up(&mut end.device, QpType::Ud, qp, address(1), number, &Link::default());
    let address = end.device.create_address(end.domain, AddressVector::to(address(1))).unwrap();
    for slot in SLOTS.into_iter().chain(SLOTS) {
        for nth in 0..2 {
            let number = QpNumber::new(first_number(slot) + nth).unwrap();
            let recipient = Some(Recipient { address, qp: number, qkey: QKey(0x1234) });
            let payload = Payload::Inline(&[1; 32]);
            let request = SendRequest { recipient, payload, ..SendRequest::new(0, Operation::Send, &[]) };
            end.device.post_send(qp, &request).unwrap();
        }
    }
    let batches = send_all(&mut end, &mut Vec::new());
    assert_separate(&batches, 4);
    assert_eq!(
        batches.iter().map(Vec::len).collect::<Vec<_>>(),
        [2; 6],
        "those of one process share a batch"
    );
}

#[test]
fn connections_to_several_processes_and_management_leave_in_batches_of_their_own() {
    let Pair { ends: [mut end, _], .. } = Pair::new();
    end.device.open_management();
    for nth in 0..2 {
        for slot in SLOTS {
            let qp = end.device.create_qp(end.qp_config(QpType::Rc)).unwrap();
            let peer = QpNumber::new(first_number(slot) + nth).unwrap();
            bring_up(&mut end.device, QpType::Rc, qp, address(1), peer, &Link::default());
            end.post(qp, 1, Operation::Send, 0, 200);
        }
        let (source, destination) = (address(0), address(1));
        end.device.send_management(&ManagementDatagram { source, destination, payload: [0; 256] });
    }
    let batches = send_all(&mut end, &mut Vec::new());
    assert_separate(&batches, 2);
    assert_eq!(batches.iter().flatten().filter(|receiver| receiver.1).count(), 2);
}

/// A device at one address connected on StaR to three at the other address: it is the server of all or the
/// client of all.
struct Star {
    pair: Pair,
    /// The devices at the other address; `pair.ends[1]` is none of them.
    others: [End; 3],
    qps: Vec<(QpHandle, QpHandle)>,
}

impl Star {
    fn new(server: usize) -> Self {
        let mut pair = Pair::new();
        let mut others = SLOTS.map(|slot| {
            let mut config = Config::new(vec![address(1)]);
            config.first_qp = first_number(slot);
            config.limits.qps = 1000;
            End::new(config)
        });
        let mut qps = Vec::new();
        for other in &mut others {
            std::mem::swap(other, &mut pair.ends[1]);
            let [one, two] = pair.connect_star(server, &Link::default());
            std::mem::swap(other, &mut pair.ends[1]);
            qps.push((one, two));
        }
        Self { pair, others, qps }
    }
}

#[test]
fn star_packets_to_several_servers_leave_in_batches_of_their_own() {
    for is_read in [false, true] {
        let Star { mut pair, others, qps } = Star::new(1);
        for ((qp, _), other) in qps.iter().zip(&others) {
            let there = other.remote(0);
            let operation = if is_read { Operation::Read(there) } else { Operation::Write(there) };
            pair.ends[0].post(*qp, 1, operation, 0, 64);
        }
        assert_separate(&send_all(&mut pair.ends[0], &mut Vec::new()), 1);
    }
}

#[test]
fn star_answers_to_several_clients_leave_in_batches_of_their_own() {
    for is_read in [false, true] {
        let Star { mut pair, mut others, qps } = Star::new(0);
        let there = pair.ends[0].remote(0);
        let operation = if is_read { Operation::Read(there) } else { Operation::Write(there) };
        let mut sent = Vec::new();
        for ((_, qp), other) in qps.iter().zip(&mut others) {
            other.post(*qp, 1, operation, 0, 64);
            send_all(other, &mut sent);
        }
        assert_eq!(sent.len(), 3);
        for (_, batch, bytes) in &sent {
            let Route { flow, traffic_class, .. } = batch.route;
            pair.ends[0].device.receive(&Datagram { flow, traffic_class, bytes }, Instant::ZERO);
        }
        assert_separate(&send_all(&mut pair.ends[0], &mut Vec::new()), 1);
        if !is_read {
            // The Close of each connection.
            qps.iter().for_each(|(qp, _)| pair.ends[0].device.destroy_qp(*qp).unwrap());
            assert_separate(&send_all(&mut pair.ends[0], &mut Vec::new()), 1);
        }
    }
}
