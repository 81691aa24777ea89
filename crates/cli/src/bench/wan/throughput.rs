//! How much TCP brings over a path without impairments, beside a loop that only copies frames from one TAP device to
//! the other.

use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use nichrome_port::Offloads;
use nichrome_wan::Impairments;
use serde::Serialize;

use super::super::{median, rounded};
use crate::copy_loop::CopyLoop;
use crate::wan::{Host, LivePath, Setup, SharedDevice, Side, ipv4};

const PORT: u16 = 7000;
const RUNS: usize = 5;
const TIME: Duration = Duration::from_secs(2);

#[derive(Serialize)]
pub(super) struct Throughput {
    path_gbps: f64,
    copy_loop_gbps: f64,
    ratio: f64,
    runs: usize,
}

/// Measures both in turn.
pub(super) fn measure() -> anyhow::Result<Throughput> {
    let (mut path, mut copy_loop) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        path.push(over_path()?);
        copy_loop.push(over_copy_loop()?);
    }
    let (path, copy_loop) = (median(path), median(copy_loop));
    Ok(Throughput {
        path_gbps: rounded(path),
        copy_loop_gbps: rounded(copy_loop),
        ratio: rounded(path / copy_loop),
        runs: RUNS,
    })
}

fn hosts() -> anyhow::Result<[Host; 2]> {
    let [left, right] = Side::BOTH;
    Ok([Host::new(left, 1500, Offloads::All)?, Host::new(right, 1500, Offloads::All)?])
}

fn devices(hosts: &[Host; 2]) -> [SharedDevice; 2] {
    hosts.each_ref().map(|host| Arc::clone(&host.tap) as SharedDevice)
}

fn over_path() -> anyhow::Result<f64> {
    let hosts = hosts()?;
    let setup = Setup {
        devices: devices(&hosts),
        impairments: &[Impairments::default(), Impairments::default()],
        seed: 1,
        frame_len: 1600,
        recording: None,
    };
    let path = LivePath::start(&setup, || {})?;
    let gbps = transfer(&hosts)?;
    path.stop()?;
    Ok(gbps)
}

fn over_copy_loop() -> anyhow::Result<f64> {
    let hosts = hosts()?;
    let copying = CopyLoop::start(&devices(&hosts))?;
    let gbps = transfer(&hosts)?;
    copying.stop()?;
    Ok(gbps)
}

/// What TCP brings from the right host to the left one, in Gbit/s.
fn transfer(hosts: &[Host; 2]) -> anyhow::Result<f64> {
    let listener = hosts[0].run(|| TcpListener::bind((ipv4(Side::Left), PORT)))??;
    let sender: JoinHandle<std::io::Result<()>> = hosts[1].run(|| {
        thread::spawn(|| {
            let mut stream = TcpStream::connect((ipv4(Side::Left), PORT))?;
            let (start, bytes) = (Instant::now(), vec![7; 128 * 1024]);
            while start.elapsed() < TIME {
                stream.write_all(&bytes)?;
            }
            Ok(())
        })
    })?;
    let (mut stream, _) = listener.accept()?;
    let (start, mut bytes, mut buffer) = (Instant::now(), 0, vec![0; 128 * 1024]);
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            read => bytes += read,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    sender.join().map_err(|_| anyhow!("the sender has panicked"))??;
    Ok(bytes as f64 * 8.0 / seconds / 1e9)
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path_gbps, copy_loop_gbps, ratio, runs } = self;
        writeln!(f, "TCP from host to host, --delay 0, median of {runs} runs in turn")?;
        writeln!(f, "{path_gbps:>8.2} Gbit/s  over the path")?;
        write!(f, "{copy_loop_gbps:>8.2} Gbit/s  over a bare copy loop from TAP to TAP: {ratio:.2} of that")
    }
}
