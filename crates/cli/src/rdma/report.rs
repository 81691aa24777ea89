//! Prints results as a table or as JSON.

use comfy_table::{Table, presets};
use nichrome_hca::{Adapter, Transport};
use nichrome_rdma::PathMtu;
use serde::Serialize;

use super::options::Options;
use crate::capture_files::print_summary;
use crate::failure;

/// A row of a table: name and value.
pub(super) type Row = (&'static str, String);

/// An adapter's counters.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Traffic {
    Datagrams(Datagrams),
    Streams(Streams),
}

/// Counters of a transport over datagrams. The names of the fields are JSON keys.
#[derive(Serialize)]
pub(super) struct Datagrams {
    path_mtu: usize,
    packets_sent: u64,
    packets_through_memory: u64,
    packets_received: u64,
    retransmitted: u64,
    timeouts: u64,
    probes: u64,
    sequence_naks: u64,
    rnr_naks: u64,
    congestion_notifications: u64,
    wrong_icrc: u64,
    lost_to_faults: u64,
    dropped_offloads: u64,
}

/// Counters of a transport over TCP, whose packets the kernel sends. The names of the fields are JSON keys.
#[derive(Serialize)]
pub(super) struct Streams {
    segments_sent: u64,
    segments_received: u64,
    socket_writes: u64,
    socket_reads: u64,
    terminates_sent: u64,
    terminates_received: u64,
    wrong_crc: u64,
}

/// Warns if the capture of an adapter has ended early.
pub(super) fn warn_of_capture(adapter: &Adapter) {
    if let Some(error) = adapter.capture_error() {
        failure::warn(format_args!("{error}: the measurement went on without the capture"));
    }
}

impl Traffic {
    /// Returns an adapter's counters. The path MTU of its connections applies to datagrams only.
    pub(super) fn of(adapter: &Adapter, mtu: PathMtu) -> Self {
        let (device, wire) = (adapter.counters(), adapter.wire_counters());
        match adapter.transport() {
            Transport::Roce | Transport::Star => Self::Datagrams(Datagrams {
                path_mtu: mtu.bytes(),
                packets_sent: wire.sent,
                packets_through_memory: wire.sent_through_memory,
                packets_received: wire.received,
                retransmitted: device.retransmitted,
                timeouts: device.timeouts,
                probes: device.probes,
                sequence_naks: device.sequence_naks_received,
                rnr_naks: device.rnr_naks_received,
                congestion_notifications: device.congestion_notifications_received,
                wrong_icrc: device.dropped_icrc,
                lost_to_faults: wire.lost,
                dropped_offloads: wire.dropped_offloads,
            }),
            Transport::Iwarp => Self::Streams(Streams {
                segments_sent: device.sent,
                segments_received: device.received,
                socket_writes: wire.sent,
                socket_reads: wire.received,
                terminates_sent: device.terminates_sent,
                terminates_received: device.terminates_received,
                wrong_crc: device.dropped_icrc,
            }),
        }
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        match self {
            Self::Datagrams(datagrams) => datagrams.rows(),
            Self::Streams(streams) => streams.rows(),
        }
    }
}

impl Datagrams {
    fn rows(&self) -> Vec<Row> {
        let Self {
            path_mtu,
            packets_sent,
            packets_through_memory,
            packets_received,
            retransmitted,
            timeouts,
            probes,
            sequence_naks,
            rnr_naks,
            congestion_notifications,
            wrong_icrc,
            lost_to_faults,
            dropped_offloads,
        } = self;
        let mut rows = vec![
            (
                "packets",
                format!(
                    "{packets_sent} sent, {packets_through_memory} of them through memory, {packets_received} received, \
                     path MTU {path_mtu}"
                ),
            ),
            (
                "recovery",
                format!(
                    "{retransmitted} requests retransmitted; {sequence_naks} sequence NAKs, {rnr_naks} RNR NAKs, \
                     {probes} probes, {timeouts} timeouts, {congestion_notifications} CNPs"
                ),
            ),
            ("damage", format!("{wrong_icrc} wrong ICRCs, {lost_to_faults} lost to faults")),
        ];
        if *dropped_offloads > 0 {
            let dropped = format!("{dropped_offloads} messages of several packets dropped");
            rows.push(("kernel before 6.2", dropped));
        }
        rows
    }
}

impl Streams {
    fn rows(&self) -> Vec<Row> {
        let Self {
            segments_sent,
            segments_received,
            socket_writes,
            socket_reads,
            terminates_sent,
            terminates_received,
            wrong_crc,
        } = self;
        vec![
            (
                "segments",
                format!(
                    "{segments_sent} sent in {socket_writes} writes, {segments_received} received in \
                     {socket_reads} reads"
                ),
            ),
            (
                "TERMINATE",
                format!(
                    "{terminates_sent} sent ({wrong_crc} for wrong CRCs), {terminates_received} received"
                ),
            ),
        ]
    }
}

/// Prints a result: to standard error if the capture goes to standard output.
pub(super) fn print(options: &Options, result: &impl Serialize, rows: &[Row]) -> anyhow::Result<()> {
    let text = if options.json {
        serde_json::to_string_pretty(result)?
    } else {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        for (name, value) in rows {
            table.add_row([*name, value.as_str()]);
        }
        table.trim_fmt()
    };
    print_summary(&text, &options.capture)
}
