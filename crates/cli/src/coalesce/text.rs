//! The summary as text.

use std::fmt;

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use nichrome_lro::{ActiveAck, Hold, NetfpgaConfig, ProfileConfig};

use super::counters::NonZeroCounts;
use super::ports;
use super::sizes::{self, Range};
use super::summary::Summary;
use crate::number::{Grouped, plural};

/// Width of the longest bar, in columns.
const BAR: usize = 40;
/// Width of a line of reasons, in columns.
const WIDTH: usize = 100;
/// Width of the name column.
const NAME: usize = 13;

/// A formatted summary.
pub(super) struct Text<'a> {
    pub(super) summary: &'a Summary,
    pub(super) profile: &'a ProfileConfig,
    pub(super) input: &'a str,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = self.summary;
        writeln!(f, "{} through {}\n", self.input, described(self.profile))?;
        totals(f, summary)?;
        sizes(f, summary)?;
        reasons(f, "flushed", &summary.flush_reasons)?;
        reasons(f, "passed", &summary.passes)?;
        reasons(f, "dropped", &summary.drops)?;
        if let ProfileConfig::Npu(npu) = self.profile
            && npu.active_ack != ActiveAck::Off
        {
            writeln!(f, "{:<NAME$}{}", "active ACKs", Grouped(summary.acks_sent))?;
        }
        flows(f, summary)?;
        if let Some(verified) = &summary.verified {
            let [frames, flows] =
                [plural(verified.frames, "frame", "frames"), plural(verified.flows, "flow", "flows")];
            let bytes = Grouped(verified.bytes);
            writeln!(f, "\nverified: {frames} of {flows} were delivered, {bytes} bytes compared")?;
        }
        Ok(())
    }
}

/// Describes profile and hold times.
fn described(profile: &ProfileConfig) -> String {
    let name = profile.profile();
    match profile {
        ProfileConfig::Gro(Hold::Batch) => format!("{name}, held until the batch ends"),
        ProfileConfig::Gro(Hold::For(hold)) | ProfileConfig::Netfpga(NetfpgaConfig { timer: hold, .. }) => {
            format!("{name}, held for at most {hold:?}")
        }
        ProfileConfig::Npu(npu) => {
            let (ceiling, reorder) = (npu.ceiling, npu.reorder_hold);
            format!("{name}, held for at most {ceiling:?}, for a gap {reorder:?}")
        }
    }
}

fn totals(f: &mut fmt::Formatter<'_>, summary: &Summary) -> fmt::Result {
    writeln!(f, "{:<NAME$}{:>16}{:>16}", "", "in", "out")?;
    for (name, before, after) in [
        ("packets", summary.packets_in, summary.packets_out),
        ("bytes", summary.bytes_in, summary.bytes_out),
        ("TCP payload", summary.tcp_payload_bytes_in, summary.tcp_payload_bytes_out),
    ] {
        let (change, before, after) = (change(before, after), Grouped(before), Grouped(after));
        writeln!(f, "{}", format!("{name:<NAME$}{before:>16}{after:>16}{change:>11}").trim_end())?;
    }
    if summary.filtered > 0 {
        writeln!(f, "{:<NAME$}{:>16}", "filtered out", Grouped(summary.filtered))?;
    }
    if summary.snapped > 0 {
        let cut = Grouped(summary.snapped);
        writeln!(f, "{:<NAME$}{cut:>16}  by the snap length: capture with 'tcpdump -s 0'", "cut short")?;
    }
    if summary.replaced_engines > 0 {
        let (replaced, most) = (Grouped(summary.replaced_engines), Grouped(ports::MAX_PORTS as u64));
        writeln!(f, "engines flushed and replaced: {replaced} (more than {most} interfaces)")?;
    }
    let aggregates = plural(summary.aggregates, "aggregate", "aggregates");
    match summary.aggregates {
        0 => writeln!(f, "\nno aggregates"),
        _ => writeln!(f, "\n{aggregates} of {:.1} segments on average", summary.mean_segments_per_aggregate),
    }
}

/// Formats the change between two numbers in percent.
fn change(before: u64, after: u64) -> String {
    if before == 0 || before == after {
        return String::new();
    }
    format!("{:+.1} %", (after as f64 / before as f64 - 1.0) * 100.0)
}

/// Formats packets to the host by number of segments, with bars.
fn sizes(f: &mut fmt::Formatter<'_>, summary: &Summary) -> fmt::Result {
    let sizes = summary.segments_histogram.iter().map(|size| (size.segments, size.packets));
    let ranges = sizes::in_ranges(sizes);
    let most = ranges.iter().map(|range| range.packets).max().unwrap_or(0);
    writeln!(f, "\n{:>10}  {:>11}", "segments", "packets")?;
    for range in &ranges {
        let bar = bar(range.packets, most);
        let note = if range.first == 1 && summary.packets_out_without_payload > 0 {
            format!("  {} of them without TCP payload", Grouped(summary.packets_out_without_payload))
        } else {
            String::new()
        };
        let (name, packets) = (range.name(), Grouped(range.packets));
        writeln!(f, "{}", format!("{name:>10}  {packets:>11}  {bar}{note}").trim_end())?;
    }
    writeln!(f)
}

/// Formats a bar in eighths of a column; non-zero counts have at least one eighth.
fn bar(count: u64, most: u64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if most == 0 || count == 0 {
        return String::new();
    }
    let eighths = ((count as f64 / most as f64 * (BAR * 8) as f64).round() as usize).max(1);
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// Formats reasons with their counts on as many lines as needed.
fn reasons(f: &mut fmt::Formatter<'_>, name: &str, counts: &NonZeroCounts) -> fmt::Result {
    let mut line = format!("{name:<NAME$}");
    let mut counts = counts.iter().peekable();
    if counts.peek().is_none() {
        line.push('–');
    }
    while let Some((reason, count)) = counts.next() {
        let comma = if counts.peek().is_some() { ", " } else { "" };
        let next = format!("{reason} {}{comma}", Grouped(count));
        if line.chars().count() + next.len() > WIDTH {
            writeln!(f, "{}", line.trim_end())?;
            line = " ".repeat(NAME);
        }
        line += &next;
    }
    writeln!(f, "{line}")
}

/// Formats the flows with the most payload.
fn flows(f: &mut fmt::Formatter<'_>, summary: &Summary) -> fmt::Result {
    if summary.flows.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
    let title = flows_title(summary.flows.len(), summary.flow_count, summary.flow_count_exceeded);
    table.set_header([title.as_str(), "payload bytes", "packets in", "out", "mean segments"]);
    for flow in &summary.flows {
        let mean = match flow.mean_segments_per_aggregate {
            0.0 => "–".into(),
            mean => format!("{mean:.1}"),
        };
        let numbers = [flow.payload_bytes, flow.packets_in, flow.packets_out].map(|n| Grouped(n).to_string());
        let row = [flow.flow.clone()].into_iter().chain(numbers).chain([mean]);
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(f, "\n{}", table.trim_fmt())
}

/// Formats the numbers of listed and of counted flows; `is_exceeded` is true if there were more flows.
fn flows_title(listed: usize, count: usize, is_exceeded: bool) -> String {
    let of = plural(count as u64, "flow", "flows");
    if is_exceeded {
        format!("top {listed} of more than {of}")
    } else if listed < count {
        format!("top {listed} of {of}")
    } else {
        of
    }
}

impl Range {
    /// Formats the range.
    pub(super) fn name(&self) -> String {
        match self.last {
            None => format!("{}+", self.first),
            Some(last) if last == self.first => last.to_string(),
            Some(last) => format!("{}–{last}", self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_counts() {
        assert_eq!(bar(10, 10).chars().count(), BAR);
        assert_eq!(bar(5, 10), "█".repeat(BAR / 2));
        assert_eq!(bar(1, 1_000_000), "▏");
        assert_eq!(bar(0, 10), "");
    }

    #[test]
    fn flows_that_are_not_counted_are_named() {
        assert_eq!(flows_title(5, 5, false), "5 flows");
        assert_eq!(flows_title(10, 1000, false), "top 10 of 1,000 flows");
        assert_eq!(flows_title(10, 1 << 20, true), "top 10 of more than 1,048,576 flows");
    }

    #[test]
    fn a_change_is_in_percent() {
        assert_eq!(change(1000, 250), "-75.0 %");
        assert_eq!(change(7, 7), "");
        assert_eq!(change(0, 0), "");
    }
}
