//! `nichrome segment`: cuts the super-packets of a capture back into segments.

mod segmenter;
mod summary;

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use clap::Args;
use nichrome_port::capture::{PacketOptions, ReadError};

use self::segmenter::{Found, Segmenter};
use self::summary::Summary;
use crate::capture_files::{
    Capture, Filter, Inputs, Interface, Interruption, Kept, Outputs, Progress, application, input_name,
    print_summary,
};
use crate::distinct::Distinct;
use crate::number;

const EXAMPLES: &str = "\
Examples:
  nichrome segment in.pcap out.pcapng                 packets that fit an MTU of 1500 bytes
  nichrome segment merged.pcapng out.pcapng           of 'nichrome coalesce' with gro: what it received
  tcpdump -i eth0 -c 10000 -w - | nichrome segment - out.pcapng --mtu 9000";

/// Segment super-packets into TCP segments and UDP datagrams that fit an MTU, for programs that cannot read
/// super-packets: the inverse of 'nichrome coalesce' with the gro profile.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Segment {
    /// The capture to read: pcap or pcapng, optionally compressed by gzip or zstd; - for standard input; a
    /// folder for all captures in it and its subfolders, as parts of one.
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The capture to write, in pcapng; - for standard output.
    #[arg(value_name = "OUT.pcapng")]
    output: PathBuf,
    /// Maximum IP packet length, in bytes [default: 1500]. In a capture that 'nichrome coalesce' wrote, the
    /// default is: restore the merged segments of gro's aggregates; split the aggregates of other profiles
    /// into segments of the size of the largest; leave all other packets unchanged.
    #[arg(long, value_name = "BYTES", value_parser = number::bytes(68..=u16::MAX))]
    mtu: Option<u16>,
    /// Maximum payload of each segment, in bytes, instead of an MTU.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = number::bytes(NonZeroU16::MIN..=NonZeroU16::MAX),
        conflicts_with = "mtu"
    )]
    mss: Option<NonZeroU16>,
    /// Use only packets that meet all terms, joined by 'and': tcp, udp, ip, ip6, host ADDRESS, net
    /// ADDRESS/BITS, port NUMBER, after TIME, before TIME (since the first packet, such as 1.5s), and 'not'
    /// before any.
    #[arg(long, value_name = "TERMS")]
    filter: Option<Filter>,
    /// Print the summary as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Segment {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let inputs = Inputs::find(&self.input)?;
        let mut files = Distinct::default();
        inputs.add_to(&mut files)?;
        files.write([("OUT", Some(&*self.output))])?;
        let (outputs, interruption) = (Outputs::default(), Interruption::watch()?);
        let captures = inputs.open(outputs.clone(), interruption.clone())?;
        let mut output = outputs.create(&self.output, application::SEGMENT)?;
        let mut summary = Summary::default();
        let mut filter = self.filter.clone();
        let ended = captures
            .each(|path, capture| self.segment(path, capture, &mut filter, &mut output, &mut summary))?;
        output.finish()?;
        let ended = ended.or_nothing_read()?;
        summary.skipped = ended.skipped_packets();
        summary.truncated = ended.is_early();
        // Returned last: an early end of the capture is reported even if the summary cannot be printed.
        let printed = self.print(&summary);
        interruption.check(summary.packets_in)?;
        ended.judge()?;
        printed
    }

    /// Segments every record; returns the error that ended the capture early, if any.
    fn segment(
        &self,
        path: &Path,
        capture: &mut Capture,
        filter: &mut Option<Filter>,
        output: &mut Kept,
        summary: &mut Summary,
    ) -> anyhow::Result<Option<ReadError>> {
        let mut progress = Progress::new(path, capture.is_compressed());
        let mut segmenter = Segmenter::new(self.mtu, self.mss);
        let (mut bytes, mut segment) = (Vec::new(), Vec::new());
        let mut last_interface = None;
        loop {
            let record = match capture.next(&mut bytes) {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(error)),
            };
            if filter.as_mut().is_some_and(|filter| !filter.takes(&record, &bytes)) {
                summary.filtered += 1;
                continue;
            }
            let from = Interface::of(&record, &bytes);
            if last_interface.replace(record.interface) != Some(record.interface) {
                output.name(from, capture.interface_name());
            }
            let found = segmenter.classify(&record, &bytes, capture);
            summary.packets_in += 1;
            match found {
                Found::Packet | Found::Unsegmentable(_) => {
                    let len = Some(record.original_len);
                    output.write(from, record.time, len, [&[], &bytes], capture.options())?;
                    summary.packets_out += 1;
                    if let Found::Unsegmentable(reason) = found {
                        *summary.left.entry(reason).or_default() += 1;
                    }
                }
                Found::SuperPacket { mut segments, header, skipped, comment } => {
                    let mut options = PacketOptions { comment, ..capture.options() };
                    summary.super_packets += 1;
                    segment.clear();
                    while segments.append_next(&mut segment) {
                        output.write(from, record.time, None, [header, &segment[skipped..]], options)?;
                        options = PacketOptions { flags: options.flags, ..PacketOptions::default() };
                        summary.packets_out += 1;
                        summary.segments += 1;
                        segment.clear();
                    }
                }
            }
            progress.reached(capture.position().bytes);
        }
    }

    fn print(&self, summary: &Summary) -> anyhow::Result<()> {
        let text = if self.json {
            serde_json::to_string_pretty(summary)?
        } else {
            format!("{}: {summary}", input_name(&self.input))
        };
        print_summary(&text, [&self.output])
    }
}
