//! A peer floods the card with malformed frames and SYNs, for a few seconds at a rate that a debug build
//! handles, or for `NICHROME_HOSTILE_SECONDS` at full rate with SYNs of ten million connections. The card
//! keeps working, its memory does not grow, every frame is accounted for, and regular connections continue.

use std::io::IoSlice;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_port::{Netlink, PacketRing, PacketRingConfig, TransmitError, WireQueue};
use nichrome_wire::{Ipv4HeaderMut, MacAddr, Network, SeqNumber, TcpFlags, TcpFrame};
use rand::{Rng, RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use crate::lab::{Direction, Family, Lab, Up, back_ends, name, needs_namespaces, until};
use crate::transfers::check_accounts;

/// Number of different four-tuples of the SYNs.
const TUPLES: u64 = 10_000_000;

/// Frames sent by one call.
const BATCH: usize = 64;

/// Number of prepared frames other than SYNs. They are sent repeatedly, and each batch replaces one, because
/// generating a frame takes longer than sending it.
const KEPT: usize = 1024;

/// Bytes by which memory may grow after the warm-up: allocators keep freed memory.
const SLACK: u64 = 4 << 20;

static DATA: [u8; 300_000] = [9; 300_000];

/// Frames per second without `NICHROME_HOSTILE_SECONDS`: about what a debug build handles. Above it, regular
/// connections lose segments and wait for retransmission timeouts.
const GENTLE: f64 = 30_000.0;

/// Returns the duration, the minimum number of SYNs, and the maximum number of frames per second.
fn load() -> (Duration, u64, f64) {
    match std::env::var("NICHROME_HOSTILE_SECONDS") {
        Ok(text) => {
            let seconds = text.parse().expect("NICHROME_HOSTILE_SECONDS");
            (Duration::from_secs(seconds), TUPLES, f64::INFINITY)
        }
        Err(_) => (Duration::from_secs(4), 0, GENTLE),
    }
}

/// State shared by the sender of random frames and the test that stops it.
#[derive(Default)]
struct Flood {
    stop: AtomicBool,
    syns: AtomicU64,
}

/// Ends a flood when dropped, also if the test fails.
struct Ending<'f>(&'f Flood);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Generates malformed and unexpected frames.
struct Rubbish {
    random: Pcg64Mcg,
    card: MacAddr,
    syn: Vec<u8>,
    syns: u64,
}

impl Rubbish {
    fn new(card: MacAddr) -> Self {
        let syn = TcpFrame {
            seq: SeqNumber(u32::MAX),
            flags: TcpFlags::SYN,
            options: vec![2, 4, 5, 180, 1, 3, 3, 7],
            ..segment(card, Network::ipv4(Ipv4Addr::new(198, 18, 0, 0), Ipv4Addr::new(10, 8, 0, 1)), 0)
        };
        Self { random: Pcg64Mcg::seed_from_u64(1), card, syn: syn.build(), syns: 0 }
    }

    /// Returns a frame of each kind except SYN, in turn.
    fn next(&mut self, nth: usize) -> Vec<u8> {
        match nth % 5 {
            0 => self.random_bytes(),
            1 => self.truncated(),
            2 => self.reset(),
            3 => self.overlapping(),
            _ => self.fragment(),
        }
    }

    fn random_bytes(&mut self) -> Vec<u8> {
        // The kernel drops a frame that ends within its VLAN tag or EtherType, and does not count it.
        let mut bytes = vec![0; self.random.random_range(20..=1514)];
        self.random.fill_bytes(&mut bytes);
        bytes[..6].copy_from_slice(&self.card.0);
        // Mostly EtherTypes that the card parses.
        let kinds = [[0x08, 0x00], [0x86, 0xDD], [0x81, 0x00], [0x88, 0xA8], [bytes[12], bytes[13]]];
        bytes[12..14].copy_from_slice(&kinds[self.random.random_range(0..kinds.len())]);
        bytes
    }

    fn truncated(&mut self) -> Vec<u8> {
        let mut frame = self.data(100).build();
        frame.truncate(self.random.random_range(14..100));
        frame
    }

    /// Returns the next of ten million SYNs. Bytes that the card ignores compensate for those that change, so
    /// that the checksums stay correct.
    fn syn(&mut self) -> &[u8] {
        const IDENT: usize = 14 + 4;
        const ADDRESS: usize = 14 + 14;
        const PORT: usize = 14 + 20;
        const SEQ: usize = PORT + 4;
        let [a, b, c, d] = ((self.syns % TUPLES) as u32).to_be_bytes();
        self.syns += 1;
        let frame = &mut self.syn;
        frame[ADDRESS..ADDRESS + 2].copy_from_slice(&[a, b]);
        frame[IDENT..IDENT + 2].copy_from_slice(&[!a, !b]);
        frame[PORT..PORT + 2].copy_from_slice(&[c, d]);
        frame[SEQ..SEQ + 4].copy_from_slice(&[!a, !b, !c, !d]);
        &self.syn
    }

    /// Returns an RST of an unknown connection.
    fn reset(&mut self) -> Vec<u8> {
        TcpFrame { flags: TcpFlags::RST, payload: Vec::new(), ..self.data(0) }.build()
    }

    /// Returns a segment of one of a few connections, whose segments overlap.
    fn overlapping(&mut self) -> Vec<u8> {
        let len = self.random.random_range(1..=1440);
        self.data(len).build()
    }

    fn data(&mut self, len: usize) -> TcpFrame {
        let (v4, v6) = (Ipv4Addr::new(10, 8, 0, 1), Ipv6Addr::new(0xFD08, 0, 0, 0, 0, 0, 0, 1));
        let network = if self.random.random() {
            Network::ipv4(Ipv4Addr::new(198, 19, 0, self.random.random()), v4)
        } else {
            Network::ipv6(Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, self.random.random()), v6)
        };
        let seq = SeqNumber(self.random.random_range(0..100_000));
        TcpFrame { seq, payload: vec![5; len], ..segment(self.card, network, self.random.random_range(1..5)) }
    }

    /// Returns an IP fragment of a datagram that is never completed.
    fn fragment(&mut self) -> Vec<u8> {
        let network = Network::ipv4(Ipv4Addr::new(10, 8, 0, 2), Ipv4Addr::new(10, 8, 0, 1));
        let mut frame = TcpFrame { payload: vec![3; 800], ..segment(self.card, network, 9) }.build();
        let more_and_offset = 0x2000 | self.random.random_range(0..8000u16);
        frame[14 + 6..14 + 8].copy_from_slice(&more_and_offset.to_be_bytes());
        let mut ip = Ipv4HeaderMut::new(&mut frame[14..]).unwrap();
        ip.set_ident(self.random.random());
        ip.fill_checksum();
        frame
    }
}

fn segment(card: MacAddr, network: Network, src_port: u16) -> TcpFrame {
    let src_mac = MacAddr([2, 0, 0, 0, 9, 9]);
    TcpFrame { dst_mac: card, src_mac, network, src_port, dst_port: 5001, ..TcpFrame::default() }
}

/// Sends random frames until it is stopped, three SYNs and one other frame in turn; returns the number of
/// frames.
fn send_rubbish(lab: &Lab, card: MacAddr, flood: &Flood) -> u64 {
    let mut wire = lab
        .there
        .run(|| {
            let interface = Netlink::open().unwrap().interface(name("p0")).unwrap();
            // This ring only sends.
            let config = PacketRingConfig { blocks: 2, buffers: 1, ..PacketRingConfig::default() };
            PacketRing::open(&interface, config).unwrap()
        })
        .unwrap();
    let mut rubbish = Rubbish::new(card);
    let mut kept: Vec<_> = (0..KEPT).map(|nth| rubbish.next(nth)).collect();
    let (mut count, begun, (.., rate)) = (0, Instant::now(), load());
    while !flood.stop.load(Ordering::Relaxed) {
        for nth in count..count + BATCH {
            let frame = if nth % 4 == 0 { &kept[nth / 4 % KEPT] } else { rubbish.syn() };
            while let Err(error) = wire.transmit(&[IoSlice::new(frame)]) {
                assert_eq!(error, TransmitError::Full);
                wire.flush().unwrap();
            }
        }
        wire.flush().unwrap();
        count += BATCH;
        kept[count / BATCH % KEPT] = rubbish.next(count / BATCH);
        flood.syns.store(rubbish.syns, Ordering::Relaxed);
        let due = Duration::from_secs_f64(count as f64 / rate);
        thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    while wire.unsent() > 0 {
        wire.flush().unwrap();
    }
    count as u64
}

/// Returns the number of frames received from the wire, including those that were lost in the ring.
fn arrived(stats: &Value) -> u64 {
    let (total, wire) = (&stats["total"], &stats["total"]["wire"]);
    let lost = ["receive_ring_full", "receive_dropped"].map(|name| wire[name].as_u64().unwrap());
    total["received"].as_u64().unwrap() + lost.iter().sum::<u64>()
}

fn sent(lab: &Lab) -> u64 {
    lab.there.run(|| Netlink::open().unwrap().interface(name("p0")).unwrap().counters.sent).unwrap()
}

/// Returns the value of `counts` once it no longer changes.
fn once_still<T: PartialEq>(counts: impl Fn() -> T) -> T {
    loop {
        let now = counts();
        thread::sleep(Duration::from_millis(100));
        if counts() == now {
            return now;
        }
    }
}

/// Transfers data over regular connections during the flood. Returns the number of transfers, and the card's
/// memory in bytes after the warm-up and at the end.
fn transfers_meanwhile(lab: &Lab, up: &Up, flood: &Flood) -> (u32, u64, u64) {
    let _ending = Ending(flood);
    let (time, syns, _) = load();
    let (begun, mut done, mut warm) = (Instant::now(), 0, None);
    while begun.elapsed() < time || flood.syns.load(Ordering::Relaxed) < syns {
        let family = if done % 2 == 0 { Family::V4 } else { Family::V6 };
        lab.transfer(&DATA, Direction::ToHost, family);
        done += 1;
        if begun.elapsed() > time / 4 && warm.is_none() {
            warm = Some(up.memory());
        }
    }
    (done, warm.unwrap_or(u64::MAX), up.memory())
}

fn withstands(profile: &[&str]) {
    for back_end in back_ends() {
        withstands_with(profile, back_end);
    }
}

fn withstands_with(profile: &[&str], back_end: &str) {
    let lab = Lab::new();
    let up = lab.up(&[profile, &["--backend", back_end]].concat());
    lab.configure_host();
    let card = lab.interface("h0").mac.unwrap();
    lab.transfer(&DATA, Direction::ToHost, Family::V4);
    let before = once_still(|| (sent(&lab), arrived(&lab.stats())));
    let (begun, flood) = (Instant::now(), Flood::default());
    let (frames, (done, warm, end)) = thread::scope(|scope| {
        let flooding = scope.spawn(|| send_rubbish(&lab, card, &flood));
        let transfers = transfers_meanwhile(&lab, &up, &flood);
        (flooding.join().unwrap(), transfers)
    });
    let time = begun.elapsed();
    until("every frame to be accounted for", || {
        let (sent, arrived) = (sent(&lab) - before.0, arrived(&lab.stats()) - before.1);
        if sent != arrived {
            println!("{sent} sent, {arrived} arrived");
        }
        sent == arrived
    });
    let stats = check_accounts(&lab);
    println!(
        "{back_end} {profile:?}: {frames} frames in {time:.0?}, SYNs of {} connections, {done} transfers, memory {warm} and \
         {end} bytes, wire {}, drops {}, passes {}",
        flood.syns.load(Ordering::Relaxed).min(TUPLES),
        stats["total"]["wire"],
        stats["total"]["engine"]["drops"],
        stats["total"]["engine"]["passes"]
    );
    assert!(end <= warm + SLACK, "memory grew from {warm} to {end} bytes");
    lab.transfer(&DATA, Direction::FromHost, Family::V6);
    up.stop();
}

#[test]
fn random_frames_do_not_disturb_gro() {
    needs_namespaces!("hostile::random_frames_do_not_disturb_gro");
    withstands(&["--profile", "gro"]);
}

#[test]
fn random_frames_do_not_disturb_npu_with_active_ack() {
    needs_namespaces!("hostile::random_frames_do_not_disturb_npu_with_active_ack");
    withstands(&["--profile", "npu", "--active-ack", "safe"]);
}
