//! Nanoseconds per packet of tun-rs's GRO (bursts of 32) on the IPv4 packets of a pcap file.
//!
//! Usage: `tun-rs-gro FILE`. Prints one line of JSON. Needs no TUN device.

use std::time::{Duration, Instant};
use std::{env, error::Error, fs};

use tun_rs::{handle_gro, GROTable, VIRTIO_NET_HDR_LEN};

/// The version that Cargo.toml pins.
const VERSION: &str = "2.8.16";

const BURST: usize = 32;
const RUNS: usize = 15;
const PACKETS_PER_RUN: usize = 144_000;

/// Capacity of each buffer: the GRO merges into the first packet's buffer, and only while the buffer need not
/// grow.
const CAPACITY: usize = 65_535 + 2 * VIRTIO_NET_HDR_LEN;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: tun-rs-gro FILE")?;
    let file = fs::read(&path)?;
    let packets = ipv4_packets(&file).map_err(|e| format!("{path}: {e}"))?;

    let mut table = GROTable::new();
    let mut buffers = Vec::from_iter((0..BURST).map(|_| Vec::with_capacity(CAPACITY)));
    let passes = (PACKETS_PER_RUN / packets.len()).max(1);
    for _ in 0..passes {
        pass(&mut table, &mut buffers, &packets)?;
    }
    let mut ns_per_packet = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let mut timed = Duration::ZERO;
        for _ in 0..passes {
            timed += pass(&mut table, &mut buffers, &packets)?;
        }
        ns_per_packet.push(timed.as_nanos() as f64 / (passes * packets.len()) as f64);
    }
    ns_per_packet.sort_by(f64::total_cmp);

    println!(
        r#"{{"peer":"tun-rs","version":"{VERSION}","checksum":true,"ns_per_packet":{:.1},"packets_in":{},"packets_out":{},"runs":{RUNS}}}"#,
        ns_per_packet[RUNS / 2],
        packets.len(),
        packets_out(&mut buffers, &packets)?,
    );
    Ok(())
}

/// The IPv4 packets, without Ethernet header, of a little-endian classic pcap file.
fn ipv4_packets(file: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    let word = |at: usize| Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?));
    if !matches!(word(0), Some(0xa1b2_c3d4 | 0xa1b2_3c4d)) || word(20) != Some(1) {
        return Err("not a little-endian pcap file of Ethernet frames");
    }
    let mut packets = Vec::new();
    let mut at = 24;
    while let Some(len) = word(at + 8) {
        let frame = file.get(at + 16..at + 16 + len as usize).ok_or("cut off")?;
        if frame.len() >= 34 && frame[12..14] == [0x08, 0x00] {
            packets.push(&frame[14..]);
        }
        at += 16 + frame.len();
    }
    if packets.is_empty() {
        return Err("no IPv4 frames");
    }
    Ok(packets)
}

/// Copies packets into the buffers, each after room for the virtio header that the GRO writes.
fn fill(buffers: &mut [Vec<u8>], packets: &[&[u8]]) {
    for (buffer, packet) in buffers.iter_mut().zip(packets) {
        buffer.clear();
        buffer.resize(VIRTIO_NET_HDR_LEN, 0);
        buffer.extend_from_slice(packet);
    }
}

/// One pass over the file. Returns the time spent in the GRO alone.
fn pass(table: &mut GROTable, buffers: &mut [Vec<u8>], packets: &[&[u8]]) -> std::io::Result<Duration> {
    let mut timed = Duration::ZERO;
    for burst in packets.chunks(BURST) {
        let buffers = &mut buffers[..burst.len()];
        fill(buffers, burst);
        let start = Instant::now();
        table.apply_gro(buffers, VIRTIO_NET_HDR_LEN, false)?;
        timed += start.elapsed();
    }
    Ok(timed)
}

/// Returns the number of packets out of one pass. `apply_gro` does not return the list of packets, so this
/// calls its inner function, with fresh tables for each burst.
fn packets_out(buffers: &mut [Vec<u8>], packets: &[&[u8]]) -> std::io::Result<usize> {
    let mut out = Vec::new();
    for burst in packets.chunks(BURST) {
        let buffers = &mut buffers[..burst.len()];
        fill(buffers, burst);
        let (mut tcp, mut udp) = Default::default();
        handle_gro(buffers, VIRTIO_NET_HDR_LEN, &mut tcp, &mut udp, false, &mut out)?;
    }
    Ok(out.len())
}
