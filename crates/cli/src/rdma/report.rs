//! Prints results as a table or as JSON.

use std::io::{self, Write};

use anyhow::Context;
use comfy_table::{Table, presets};
use nichrome_hca::Adapter;
use serde::Serialize;

/// A row of a table: name and value.
pub(super) type Row = (&'static str, String);

/// An adapter's counters. The names of the fields are JSON keys.
#[derive(Serialize)]
pub(super) struct Traffic {
    packets_sent: u64,
    packets_received: u64,
    retransmitted: u64,
    timeouts: u64,
    probes: u64,
    sequence_naks: u64,
    congestion_notifications: u64,
    wrong_icrc: u64,
    lost_to_faults: u64,
}

impl Traffic {
    pub(super) fn of(adapter: &Adapter) -> Self {
        let (device, wire) = (adapter.counters(), adapter.wire_counters());
        Self {
            packets_sent: wire.sent,
            packets_received: wire.received,
            retransmitted: device.retransmitted,
            timeouts: device.timeouts,
            probes: device.probes,
            sequence_naks: device.sequence_naks_received,
            congestion_notifications: device.congestion_notifications_received,
            wrong_icrc: device.dropped_icrc,
            lost_to_faults: wire.lost,
        }
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let Self {
            packets_sent,
            packets_received,
            retransmitted,
            timeouts,
            probes,
            sequence_naks,
            congestion_notifications,
            wrong_icrc,
            lost_to_faults,
        } = self;
        vec![
            ("packets", format!("{packets_sent} sent, {packets_received} received")),
            (
                "recovery",
                format!(
                    "{retransmitted} requests retransmitted; {sequence_naks} sequence NAKs, {probes} probes, \
                     {timeouts} timeouts, {congestion_notifications} CNPs"
                ),
            ),
            ("damage", format!("{wrong_icrc} wrong ICRCs, {lost_to_faults} lost to faults")),
        ]
    }
}

/// Prints a result.
pub(super) fn print(json: bool, result: &impl Serialize, rows: &[Row]) -> anyhow::Result<()> {
    let text = if json {
        serde_json::to_string_pretty(result)?
    } else {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        for (name, value) in rows {
            table.add_row([*name, value.as_str()]);
        }
        table.to_string()
    };
    writeln!(io::stdout(), "{text}").context("cannot print the result")
}
