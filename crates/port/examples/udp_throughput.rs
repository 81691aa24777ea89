//! Measures the throughput of the UDP driver alone, between two processes on the loopback interface, each on
//! its own processor: datagrams of a RoCE packet's size, sent with segmentation offload and received
//! coalesced.
//!
//!     cargo run --release -p nichrome-port --example udp_throughput [SECONDS]
//!
//! In mode `plain`, datagrams are neither written nor read. In mode `icrc`, the sender builds each from a
//! message in memory with its ICRC; the receiver checks it and copies the payload to memory, as a card would.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use nichrome_port::clock;
use nichrome_port::udp::{Envelope, ReceiveBatch, SendBatch, UdpSocket};
use nichrome_wire::rdma::{
    Bth, BthFlags, DatagramWriter, IcrcCheck, IcrcChecker, Message, PKey, Part, Psn, QpNumber, RcMessage,
    Repr, UdpFlow,
};
use nichrome_wire::{AddressPair, Instant, TrafficClass};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PORT: u16 = 4791;
const PAYLOAD: usize = 4096;
const MESSAGE: usize = 1 << 20;
const PACKET: Repr = Repr {
    bth: Bth {
        flags: BthFlags::NONE,
        pkey: PKey(0xFFFF),
        dest_qp: QpNumber::GENERAL_SERVICES,
        psn: Psn::new(0),
    },
    message: Message::Rc(RcMessage::Write(Part::Middle)),
};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [role, kind, seconds] if role == "receive" => receive(kind == "icrc", seconds.parse()?),
        rest => {
            let seconds: u64 = rest.first().map_or(Ok(3), |seconds| seconds.parse())?;
            for kind in ["plain", "icrc"] {
                measure(kind, seconds)?;
            }
            Ok(())
        }
    }
}

fn measure(kind: &str, seconds: u64) -> Result<()> {
    pin(0)?;
    let mut receiver = Command::new(std::env::current_exe()?)
        .args(["receive", kind, &seconds.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(receiver.stdout.take().ok_or("no output")?).lines();
    let peer: SocketAddr = lines.next().ok_or("the receiver has gone")??.parse()?;
    let used = processor_time();
    let sent = send(kind == "icrc", peer, clock::now() + Duration::from_secs(seconds + 1))?;
    let figures = lines.next().ok_or("the receiver has gone")??;
    let used = (processor_time() - used) / sent.max(1);
    println!("{kind:>5}: {figures}; {sent} sent, {used} ns each");
    receiver.wait()?;
    Ok(())
}

fn send(icrc: bool, peer: SocketAddr, until: Instant) -> Result<u64> {
    let socket = UdpSocket::open_loopback(PORT)?;
    let flow = flow(socket.local(), peer)?;
    let envelope = Envelope { peer, traffic_class: TrafficClass(2), hop_limit: None };
    let size = PACKET.datagram_len(PAYLOAD);
    let (mut batch, mut sent) = (SendBatch::default(), 0);
    let message = vec![7; MESSAGE];
    let mut rest = message.chunks_exact(PAYLOAD).cycle();
    while clock::now() < until {
        while let Some(room) = batch.room() {
            let segments = socket.max_segments(size);
            for (ident, datagram) in room.chunks_exact_mut(size).take(segments).enumerate() {
                if icrc {
                    let writer = DatagramWriter::new(&PACKET, PAYLOAD, &flow, ident as u16, datagram);
                    let mut writer = writer.ok_or("no room")?;
                    writer.payload().copy_from_slice(rest.next().ok_or("no message")?);
                    writer.finish();
                }
            }
            batch.stage(envelope, segments * size, size);
        }
        sent += batch.send(&socket).sent;
    }
    Ok(sent)
}

fn receive(icrc: bool, seconds: u64) -> Result<()> {
    pin(1)?;
    let socket = UdpSocket::open_loopback(PORT)?;
    println!("{}", socket.local());
    std::io::stdout().flush()?;
    let mut batch = ReceiveBatch::default();
    let mut checker = IcrcChecker::default();
    let mut memory = vec![0; MESSAGE];
    let (mut datagrams, mut calls, mut at) = (0u64, 0u64, 0);
    clock::wait([socket.as_fd()], None)?;
    let start = clock::now();
    let end = start + Duration::from_secs(seconds);
    let used = processor_time();
    while clock::now() < end {
        if !batch.receive(&socket)? {
            clock::wait([socket.as_fd()], Some(end))?;
        }
        calls += 1;
        for arrival in batch.arrivals() {
            let flow = flow(arrival.peer, socket.local())?;
            for datagram in arrival.datagrams() {
                datagrams += 1;
                if icrc {
                    if checker.check(&flow, datagram) == IcrcCheck::Wrong {
                        return Err("a wrong ICRC".into());
                    }
                    let (_, payload) = Repr::parse(datagram)?;
                    memory[at..at + PAYLOAD].copy_from_slice(payload);
                    at = (at + PAYLOAD) % MESSAGE;
                }
            }
        }
    }
    let nanos = clock::now().nanos_since(start) as f64;
    let gbps = datagrams as f64 * PAYLOAD as f64 * 8.0 / nanos;
    let used = (processor_time() - used) / datagrams.max(1);
    println!(
        "{gbps:.1} Gb/s of payload, {datagrams} datagrams received in {calls} calls, {used} ns of processor each"
    );
    Ok(())
}

fn flow(src: SocketAddr, dst: SocketAddr) -> Result<UdpFlow> {
    let (SocketAddr::V4(src), SocketAddr::V4(dst)) = (src, dst) else { return Err("not IPv4".into()) };
    Ok(UdpFlow::to_roce(AddressPair::V4 { src: *src.ip(), dst: *dst.ip() }, src.port()))
}

/// Returns the processor time of this process, in nanoseconds.
fn processor_time() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn pin(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}
