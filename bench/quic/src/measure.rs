//! Transfers between two hosts with a card each, with UDP coalescing off and on.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, ensure};
use nichrome_lab::lro::{Config, Hold, ProfileConfig};
use nichrome_lab::wan::Loss;
use nichrome_lab::{Impairments, Lab, Side};
use serde::Serialize;

use crate::transfer::Transfer;

/// UDP port of the receiver.
const PORT: u16 = 4433;
/// Packet loss in each direction, and its text as given; `none` for no loss.
#[derive(Clone)]
pub(crate) struct PathLoss {
    text: String,
    loss: Option<Loss>,
}

impl FromStr for PathLoss {
    type Err = <Loss as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let loss = if text == "none" { None } else { Some(text.parse()?) };
        Ok(Self { text: text.to_owned(), loss })
    }
}

/// Medians of the rounds for one path.
#[derive(Serialize)]
pub(crate) struct Row {
    /// Packet loss in each direction.
    loss: String,
    /// Whether the receiving card coalesces UDP.
    udp: &'static str,
    gbps: f64,
    cpu_s_per_gb: f64,
    /// Datagrams in a packet to the receiver's kernel.
    datagrams_per_packet: f64,
}

impl Row {
    pub(crate) const HEADINGS: &str = "loss             --udp    Gb/s   receiver CPU s/GB   datagrams a packet";
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, udp, gbps, cpu_s_per_gb, datagrams_per_packet } = self;
        write!(f, "{loss:16} {udp:5} {gbps:7.2} {cpu_s_per_gb:19.3} {datagrams_per_packet:20.1}")
    }
}

/// Measures each loss with UDP coalescing off, and on if this kernel accepts coalesced datagrams, in rounds.
pub(crate) fn rows(losses: &[PathLoss], rounds: usize, seconds: u64) -> anyhow::Result<Vec<Row>> {
    let udp: &[&str] = if accepts_merged_udp()? {
        &["off", "on"]
    } else {
        eprintln!("left out: --udp on: this kernel accepts no coalesced datagrams (Linux 6.2 does)");
        &["off"]
    };
    let cases = losses.iter().flat_map(|loss| udp.iter().map(move |udp| (loss, *udp)));
    let mut cases: Vec<_> = cases.map(|case| (case, Vec::new())).collect();
    for round in 1..=rounds {
        for ((loss, udp), measured) in &mut cases {
            eprintln!("quic: round {round} of {rounds}, loss {}, udp {udp}", loss.text);
            measured.push(measure(loss, *udp == "on", seconds)?);
        }
    }
    let rows = cases.into_iter().map(|((loss, udp), measured)| {
        let median = |figure: fn(&(Transfer, u64)) -> f64| {
            let mut figures: Vec<f64> = measured.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        Row {
            loss: loss.text.clone(),
            udp,
            gbps: median(|(transfer, _)| transfer.gbps),
            cpu_s_per_gb: median(|(transfer, _)| transfer.cpu_s_per_gb),
            datagrams_per_packet: median(|(transfer, packets)| transfer.datagrams as f64 / *packets as f64),
        }
    });
    Ok(rows.collect())
}

/// Returns true if this kernel accepts coalesced datagrams.
fn accepts_merged_udp() -> anyhow::Result<bool> {
    let lab = Lab::new(&Default::default(), 1)?;
    let accepts = lab.host(Side::Left).tap.takes_merged_udp();
    lab.stop()?;
    Ok(accepts)
}

/// Measures one transfer; returns it, and the number of packets to the receiver's kernel.
fn measure(loss: &PathLoss, udp: bool, seconds: u64) -> anyhow::Result<(Transfer, u64)> {
    let path = Impairments { loss: loss.loss.clone(), ..Impairments::default() };
    let engine = Config { udp, ..Config::default() };
    let lab = Lab::with_offload(&[path.clone(), path], 1, engine, Some(ProfileConfig::Gro(Hold::Batch)))?;
    let [receiver, sender] = Side::BOTH.map(|side| lab.host(side));
    let address = format!("{}:{PORT}", Side::Left.ipv4());
    let this = env::current_exe()?;
    let start = |arguments: &[&str]| {
        let mut command = Command::new(&this);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Process)
    };
    let mut receiving = receiver.run(|| start(&["receive", &address, &seconds.to_string()]))??;
    let mut said = BufReader::new(receiving.0.stdout.take().context("no output")?);
    let mut certificate = String::new();
    said.read_line(&mut certificate)?;
    let mut sending = sender.run(|| start(&["send", &address]))??;
    sending.0.stdin.take().context("no input")?.write_all(certificate.as_bytes())?;
    let transfer = serde_json::from_reader(said).context("the transfer has failed")?;
    [receiving, sending].into_iter().try_for_each(Process::end)?;
    let packets = receiver.counters()?.received;
    lab.stop()?;
    Ok((transfer, packets))
}

/// A process, killed when dropped.
struct Process(Child);

impl Process {
    /// Waits until the process ends.
    fn end(mut self) -> anyhow::Result<()> {
        ensure!(self.0.wait()?.success(), "a process of the transfer has failed");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
