//! The results of the demonstration; names are stable.

use std::fmt;

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use serde::Serialize;

use crate::number::Grouped;

/// All runs.
#[derive(Default, Serialize)]
pub(super) struct Summary {
    pub(super) runs: Vec<Run>,
    /// Throughput of a loop that copies frames of 64 KB unchanged, without segmentation or coalescing.
    pub(super) unsegmented: Vec<Unsegmented>,
}

/// Throughput of the copy loop with a number of connections.
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
    /// Mean length of these packets, in bytes, headers included.
    pub(super) bytes_per_packet: f64,
    /// CPU time of the receiving host: the program, and the kernel's processing of its packets.
    pub(super) host_cpu_s_per_gb: f64,
    pub(super) retransmits: u64,
}

/// Returns the median of the rounds for each position, by throughput; of an even number the lower one.
fn medians<T>(rounds: Vec<Vec<T>>, gbps: impl Fn(&T) -> f64) -> Vec<T> {
    let mut of_each: Vec<Vec<T>> = Vec::new();
    for round in rounds {
        of_each.resize_with(round.len(), Vec::new);
        round.into_iter().zip(&mut of_each).for_each(|(one, all)| all.push(one));
    }
    let median = |mut all: Vec<T>| {
        all.sort_by(|a, b| gbps(a).total_cmp(&gbps(b)));
        let middle = all.len().saturating_sub(1) / 2;
        all.into_iter().nth(middle)
    };
    of_each.into_iter().filter_map(median).collect()
}

impl Summary {
    /// Returns each run's median of several rounds of the same runs.
    pub(super) fn of_medians(rounds: Vec<Self>) -> Self {
        let (runs, unsegmented) = rounds.into_iter().map(|round| (round.runs, round.unsegmented)).unzip();
        Self { runs: medians(runs, |run| run.gbps), unsegmented: medians(unsegmented, |one| one.gbps) }
    }

    /// Returns the ratios of the throughput of `gro` to that of the kernel's GRO and of the copy loop, with
    /// this number of connections.
    fn ratios(&self, connections: usize) -> Option<(f64, f64)> {
        let gro = self.bulk("gro", connections)?.gbps;
        let kernel = self.bulk("kernel-gro", connections)?.gbps;
        let passed = self.unsegmented.iter().find(|one| one.connections == connections)?.gbps;
        Some((gro / kernel, gro / passed))
    }

    /// Returns a profile's bulk run with this number of connections.
    fn bulk(&self, profile: &str, connections: usize) -> Option<&Run> {
        let matches = |run: &&Run| {
            run.profile == profile && run.traffic == Traffic::Bulk { connections } && run.active_ack == "off"
        };
        self.runs.iter().find(matches)
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
        write!(f, "{}", table.trim_fmt())?;
        let most = self.most();
        if let Some(none) = self.bulk("none", most)
            && none.gbps > 0.0
        {
            for profile in ["npu", "gro"] {
                if let Some(run) = self.bulk(profile, most) {
                    let throughput = run.gbps / none.gbps;
                    write!(
                        f,
                        "\n{profile:<4} with {most} connections: {throughput:.1} times the throughput of a card without offload"
                    )?;
                    let host_cpu = run.host_cpu_s_per_gb / none.host_cpu_s_per_gb;
                    if host_cpu.is_finite() {
                        write!(f, ", {host_cpu:.2} times the host CPU")?;
                    }
                }
            }
        }
        for (nth, Unsegmented { connections, gbps }) in self.unsegmented.iter().enumerate() {
            let before = if nth == 0 { "\n64 KB frames passed through as they are:" } else { "," };
            write!(f, "{before} {gbps:.2} Gbit/s with {connections}")?;
        }
        for Unsegmented { connections, .. } in &self.unsegmented {
            if let Some((kernel, passed)) = self.ratios(*connections) {
                write!(
                    f,
                    "\ngro with {connections}: {kernel:.2} of the kernel's GRO, {passed:.2} of 64 KB frames passed through"
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(profile: &'static str, gbps: f64) -> Run {
        Run {
            profile,
            active_ack: "off",
            connections: 1,
            traffic: Traffic::Bulk { connections: 1 },
            gbps,
            packets_to_host: 1,
            bytes_per_packet: 1.0,
            host_cpu_s_per_gb: 1.0,
            retransmits: 0,
        }
    }

    fn round([gro, kernel, passed]: [f64; 3]) -> Summary {
        let runs = vec![run("gro", gro), run("kernel-gro", kernel)];
        Summary { runs, unsegmented: vec![Unsegmented { connections: 1, gbps: passed }] }
    }

    #[test]
    fn each_run_has_its_own_median_of_the_rounds() {
        let rounds = [[9.0, 1.0, 8.0], [3.0, 4.0, 7.0], [2.0, 6.0, 6.0]].map(round);
        let summary = Summary::of_medians(rounds.into());
        let gbps: Vec<f64> = summary.runs.iter().map(|run| run.gbps).collect();
        assert_eq!((gbps, summary.unsegmented[0].gbps), (vec![3.0, 4.0], 7.0));
        assert_eq!(summary.ratios(1), Some((3.0 / 4.0, 3.0 / 7.0)));
        assert_eq!(summary.ratios(64), None);
    }

    /// If the CPU time of the card without offload was measured as 0, the text has no ratio to it.
    #[test]
    fn the_text_compares_the_host_cpu_that_was_measured() {
        for (host_cpu, end) in [(2.0, ", 0.50 times the host CPU"), (0.0, "of a card without offload")] {
            let none = Run { host_cpu_s_per_gb: host_cpu, ..run("none", 1.0) };
            let text = Summary { runs: vec![none, run("gro", 3.0)], unsegmented: Vec::new() }.to_string();
            assert!(text.ends_with(end), "{text}");
        }
        let runs = vec![
            Run { host_cpu_s_per_gb: 0.0, ..run("none", 1.0) },
            Run { host_cpu_s_per_gb: 0.0, ..run("npu", 1.0) },
        ];
        let text = Summary { runs, unsegmented: Vec::new() }.to_string();
        assert!(text.ends_with("1.0 times the throughput of a card without offload"), "{text}");
    }

    /// Programs parse these names.
    #[test]
    fn the_names_in_json_stay() {
        let json = serde_json::to_value(round([1.0, 2.0, 3.0])).unwrap();
        let run = serde_json::json!({
            "profile": "gro", "active_ack": "off", "connections": 1, "traffic": "bulk", "gbps": 1.0, "packets_to_host": 1,
            "bytes_per_packet": 1.0, "host_cpu_s_per_gb": 1.0, "retransmits": 0,
        });
        assert_eq!(json["runs"][0], run);
        assert_eq!(json["unsegmented"], serde_json::json!([{ "connections": 1, "gbps": 3.0 }]));
    }

    #[test]
    fn the_text_has_the_ratios_to_the_kernel_and_to_frames_passed_through() {
        let text = round([3.0, 4.0, 6.0]).to_string();
        assert!(text.contains("0.75") && text.contains("0.50"), "{text}");
        // With impairments the copy loop is not measured.
        let text = Summary { unsegmented: Vec::new(), ..round([3.0, 4.0, 6.0]) }.to_string();
        assert!(!text.contains("passed through") && !text.ends_with('\n'), "{text}");
    }
}
