//! The results of the demonstration; names are stable.

use std::fmt;

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use serde::Serialize;

use crate::number::Grouped;

/// All runs.
#[derive(Default, Serialize)]
pub(super) struct Summary {
    pub(super) runs: Vec<Run>,
    /// Throughput of a loop that passes frames of 64 KB unchanged, without segmentation or coalescing.
    pub(super) unsegmented: Vec<Unsegmented>,
}

/// Throughput of that loop with a number of connections.
#[derive(Serialize)]
pub(super) struct Unsegmented {
    pub(super) connections: usize,
    pub(super) gbps: f64,
}

/// The traffic of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Connections that send as fast as they can.
    Bulk { connections: usize },
    /// Two connections, the second at a tenth of the first one's rate: lro-netfpga, Figure 11.
    TwoRates,
}

impl Traffic {
    pub(super) const fn connections(self) -> usize {
        match self {
            Self::Bulk { connections } => connections,
            Self::TwoRates => 2,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Bulk { .. } => "bulk",
            Self::TwoRates => "two_rates",
        }
    }
}

impl Serialize for Traffic {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One run.
#[derive(Serialize)]
pub(super) struct Run {
    pub(super) profile: &'static str,
    pub(super) active_ack: &'static str,
    pub(super) connections: usize,
    pub(super) traffic: Traffic,
    /// Goodput: TCP payload read by the receiving program.
    pub(super) gbps: f64,
    /// IP packets delivered to the receiving kernel.
    pub(super) packets_to_host: u64,
    /// Mean TCP payload of these packets, in bytes.
    pub(super) bytes_per_packet: f64,
    /// CPU time of the receiving host: the program, and the kernel's processing of its packets.
    pub(super) host_cpu_s_per_gb: f64,
    pub(super) retransmits: u64,
}

impl Summary {
    /// Returns a profile's bulk run with this number of connections.
    fn bulk(&self, profile: &str, connections: usize) -> Option<&Run> {
        let is_it = |run: &&Run| {
            run.profile == profile && run.traffic == Traffic::Bulk { connections } && run.active_ack == "off"
        };
        self.runs.iter().find(is_it)
    }

    /// Returns the highest number of connections.
    fn most(&self) -> usize {
        self.runs.iter().map(|run| run.connections).max().unwrap_or(0)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
        table.set_header([
            "connections",
            "card",
            "active ACK",
            "Gbit/s",
            "packets to host",
            "bytes a packet",
            "host CPU s/GB",
            "retransmits",
        ]);
        let mut last = None;
        for run in &self.runs {
            let group = (run.traffic, run.connections);
            let connections = match run.traffic {
                _ if last == Some(group) => String::new(),
                Traffic::Bulk { connections } => connections.to_string(),
                Traffic::TwoRates => "2, at 10 : 1".into(),
            };
            last = Some(group);
            table.add_row([
                connections,
                run.profile.into(),
                run.active_ack.into(),
                format!("{:.2}", run.gbps),
                Grouped(run.packets_to_host).to_string(),
                Grouped(run.bytes_per_packet as u64).to_string(),
                format!("{:.3}", run.host_cpu_s_per_gb),
                Grouped(run.retransmits).to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "TCP between two kernels at an MTU of 1,500 bytes, each behind its card\n")?;
        writeln!(f, "{}", table.trim_fmt())?;
        let most = self.most();
        if let Some(none) = self.bulk("none", most) {
            for profile in ["npu", "gro"] {
                if let Some(run) = self.bulk(profile, most) {
                    writeln!(
                        f,
                        "{profile:<4} with {most} connections: {:.1} times the throughput of a card without offload, {:.2} times the host CPU",
                        run.gbps / none.gbps,
                        run.host_cpu_s_per_gb / none.host_cpu_s_per_gb
                    )?;
                }
            }
        }
        write!(f, "64 KB frames passed through as they are:")?;
        for (nth, Unsegmented { connections, gbps }) in self.unsegmented.iter().enumerate() {
            let before = if nth == 0 { "" } else { "," };
            write!(f, "{before} {gbps:.2} Gbit/s with {connections}")?;
        }
        Ok(())
    }
}
