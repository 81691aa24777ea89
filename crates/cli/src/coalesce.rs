//! `nichrome coalesce`: passes a capture through a receive offload engine.

mod captured;
mod card;
mod compare;
mod counters;
mod flows;
mod host;
mod page;
mod plot;
mod ports;
mod sizes;
mod summary;
mod tally;
mod text;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use nichrome_lro::{Profile, ProfileConfig};
use nichrome_port::capture::ReadError;

use self::card::Card;
use self::compare::Comparison;
use self::host::Host;
use self::summary::Summary;
use self::text::Text;
use crate::capture_files::{
    Capture, Ended, Filter, Inputs, Interruption, Kept, Outputs, Progress, application, input_name,
    is_standard_stream, is_stream, print_summary,
};
use crate::distinct::Distinct;
use crate::engine_options::{EngineOptions, default_profile_config, profile};
use crate::failure;
use crate::number::{self, Grouped, plural};
use crate::page::PageOption;
use crate::picture_file::{self, PictureFile};

const EXAMPLES: &str = "\
Examples:
  nichrome coalesce in.pcap                           what a card with receive offload would have done
  nichrome coalesce in.pcap out.pcapng --verify       the same, kept and checked
  nichrome coalesce in.pcap --profile npu --hold 5ms --plot sizes.svg
  nichrome coalesce in.pcap --compare --plot all.svg  which card would have helped
  nichrome coalesce in.pcap --html in.html            the same to zoom into and to sort, in a browser
  nichrome coalesce captures/ out.pcapng              all captures of a folder, as 'tcpdump -C' writes them
  tcpdump -i eth0 -U -w - tcp | nichrome coalesce - - | wireshark -k -i -";

/// Show, and write, what a card with receive offload would have passed to the host.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Coalesce {
    /// The capture to read: pcap or pcapng, optionally compressed by gzip or zstd; - for standard input; a
    /// folder for all captures in it and its subfolders, as parts of one.
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The capture to write, in pcapng: every packet as the host receives it; - for standard output.
    #[arg(value_name = "OUT.pcapng")]
    output: Option<PathBuf>,
    /// The engine: gro (lossless), netfpga (one flow at a time) or npu (reorders).
    #[arg(long, value_name = "PROFILE", default_value_t, value_parser = profile(), hide_possible_values = true)]
    profile: Profile,
    #[command(flatten)]
    engine: EngineOptions,
    /// File for the ACKs that the card sends by itself; needs --active-ack.
    #[arg(long, value_name = "ACKS.pcapng")]
    acks: Option<PathBuf>,
    /// Compare all profiles with several hold times in one table: which card would have helped. Segments with
    /// a wrong checksum are passed unless --bad-checksum is given.
    #[arg(long, conflicts_with_all = [
        "output", "profile", "hold", "reorder_hold", "psh", "rules", "active_ack", "acks", "top"
    ])]
    compare: bool,
    /// Use only packets that meet all terms, joined by 'and': tcp, udp, ip, ip6, host ADDRESS, net
    /// ADDRESS/BITS, port NUMBER, after TIME, before TIME (since the first packet, such as 1.5s), and 'not'
    /// before any.
    #[arg(long, value_name = "TERMS")]
    filter: Option<Filter>,
    /// Segment the output again and check that nothing is lost, added or out of order.
    #[arg(long)]
    verify: bool,
    /// Print the summary as one JSON object.
    #[arg(long)]
    json: bool,
    /// Draw the sizes of the aggregates, and the packets over time before and after.
    #[arg(long, value_name = "FILE.svg", value_parser = picture_file::svg())]
    plot: Option<PathBuf>,
    #[command(flatten)]
    page: PageOption,
    /// Number of flows in the summary, those with the most payload first.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::whole(0..=usize::MAX))]
    top: usize,
}

impl Coalesce {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        if self.compare { self.compare() } else { self.coalesce() }
    }

    /// Passes the capture through one engine.
    fn coalesce(&self) -> anyhow::Result<()> {
        let profile = self.engine.profile_config(default_profile_config(self.profile))?;
        self.check_options()?;
        let inputs = Inputs::find(&self.input)?;
        self.check_files(&inputs)?;
        let (outputs, interruption) = (Outputs::default(), Interruption::watch()?);
        let captures = inputs.open(outputs.clone(), interruption.clone())?;
        let (plot, page) = (self.create_plot()?, self.page.create()?);
        let acks = create(&outputs, self.acks.as_deref())?;
        let host = Host::new(create(&outputs, self.output.as_deref())?, acks, self.engine.has_tunnels());
        let mut card = Card::new(&self.engine, profile, self.verify, host);
        let mut filter = self.filter.clone();
        let ended = captures.each(|path, capture| feed(path, capture, &mut filter, &mut card))?;
        let (done, verified) = card.finish()?;
        let ended = ended.or_nothing_read()?;
        let verified_frames = verified.as_ref().and_then(|verified| verified.as_ref().ok());
        let summary = Summary::new(&done, &profile, self.top, &ended, verified_frames);
        // Returned last: if the summary cannot be printed, the files are still written and the verdict
        // reported.
        let printed = self.print(&summary, &profile);
        let draw = |plot: PictureFile| plot.finish(&plot::draw(&self.title(&summary), &done.tally)?);
        let drawn = plot.map_or(Ok(()), draw);
        let paged = page.finish(|| page::of_summary(&self.title(&summary), &done.tally, &summary));
        let verdict = match verified {
            Some(Err(mismatch)) => Err(mismatch)
                .with_context(|| format!("{}: the output {}", input_name(&self.input), self.why_rejected())),
            _ => interruption.check(summary.packets_in).and_then(|()| ended.judge()),
        };
        failure::first_of([verdict, drawn, paged].into_iter().filter_map(Result::err))?;
        printed
    }

    /// Passes the capture through all candidates, one after another: each engine reserves memory per
    /// interface.
    fn compare(&self) -> anyhow::Result<()> {
        if is_stream(&self.input) {
            let input = self.input.display();
            return Err(failure::usage(format!(
                "--compare reads the capture several times: name a file instead of {input}"
            )));
        }
        self.check_options()?;
        let inputs = Inputs::find(&self.input)?;
        self.check_files(&inputs)?;
        let interruption = Interruption::watch()?;
        let (plot, page) = (self.create_plot()?, self.page.create()?);
        let mut comparison = Comparison::default();
        let mut last = None;
        let count = compare::candidates().count();
        let engine = self.engine.passing_bad_checksums();
        for (tried, candidate) in compare::candidates().enumerate() {
            let host = Host::new(None, None, self.engine.has_tunnels());
            let mut card = Card::new(&engine, candidate.config, self.verify, host);
            let mut filter = self.filter.clone();
            let captures = inputs.open(Outputs::default(), interruption.clone())?;
            let ended = captures.each(|path, capture| feed(path, capture, &mut filter, &mut card))?;
            let (done, verified) = card.finish()?;
            interruption.check_with(|| format!("{tried} of {count} engines were tried"))?;
            let ended = ended.or_nothing_read()?;
            let verified = verified.transpose().with_context(|| {
                let (input, profile) = (input_name(&self.input), candidate.config.profile());
                format!("{input}: the output of {profile} {}", self.why_rejected())
            })?;
            comparison.add(candidate, &done, verified);
            comparison.skipped = ended.skipped_packets();
            comparison.truncated = ended.is_early();
            last = Some(ended);
        }
        let text = if self.json {
            serde_json::to_string_pretty(&comparison)?
        } else {
            format!("{} through every profile\n\n{comparison}", input_name(&self.input))
        };
        let printed = writeln!(io::stdout(), "{}", text.trim_end()).context("cannot print the table");
        let title = format!("{} through every profile", file_name(&self.input));
        let drawn = plot.map_or(Ok(()), |plot| plot.finish(&comparison.draw(&title)?));
        let paged = page.finish(|| comparison.page(&title));
        let judged = last.map_or(Ok(()), Ended::judge);
        failure::first_of([judged, drawn, paged].into_iter().filter_map(Result::err))?;
        printed
    }

    /// Returns the predicate of the error for output that fails verification.
    fn why_rejected(&self) -> &'static str {
        if self.engine.has_paper_rules() {
            "fails verification: --rules paper drops segments that it has not seen (--rules safe does not)"
        } else {
            "fails verification"
        }
    }

    fn check_options(&self) -> anyhow::Result<()> {
        if self.acks.is_some() && !self.engine.acknowledges() {
            let needed =
                "--acks needs --active-ack paper or safe: the card sends no acknowledgements otherwise";
            return Err(failure::usage(needed));
        }
        Ok(())
    }

    /// Rejects files that are read and written, or written twice.
    fn check_files(&self, inputs: &Inputs) -> anyhow::Result<()> {
        let mut files = Distinct::default();
        inputs.add_to(&mut files)?;
        files.write([
            ("OUT", self.output.as_deref()),
            ("--acks", self.acks.as_deref()),
            ("--plot", self.plot.as_deref()),
            self.page.output(),
        ])
    }

    fn print(&self, summary: &Summary, profile: &ProfileConfig) -> anyhow::Result<()> {
        let text = if self.json {
            serde_json::to_string_pretty(summary)?
        } else {
            Text { summary, profile, input: &input_name(&self.input) }.to_string()
        };
        print_summary(&text, [&self.output, &self.acks].into_iter().flatten())
    }

    fn create_plot(&self) -> anyhow::Result<Option<PictureFile>> {
        self.plot.as_deref().map(PictureFile::create).transpose()
    }

    /// Returns the title of a picture or a page.
    fn title(&self, summary: &Summary) -> String {
        let before = plural(summary.packets_in, "packet", "packets");
        let (input, after) = (file_name(&self.input), Grouped(summary.packets_out));
        format!("{input} through {}: {before} in, {after} out", summary.profile)
    }
}

/// Passes every record of a capture to the card; returns the error that ended the capture early, if any.
fn feed(
    path: &Path,
    capture: &mut Capture,
    filter: &mut Option<Filter>,
    card: &mut Card<'_>,
) -> anyhow::Result<Option<ReadError>> {
    let mut progress = Progress::new(path, capture.is_compressed());
    loop {
        let mut frame = Vec::new();
        match capture.next(&mut frame) {
            Ok(Some(record)) if filter.as_mut().is_some_and(|filter| !filter.takes(&record, &frame)) => {
                card.leave_out();
            }
            Ok(Some(record)) => card.receive(&record, frame, capture)?,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        }
        progress.reached(capture.position().bytes);
    }
}

fn create(outputs: &Outputs, path: Option<&Path>) -> anyhow::Result<Option<Kept>> {
    Ok(path.map(|path| outputs.create(path, application::COALESCE)).transpose()?)
}

fn file_name(path: &Path) -> String {
    if is_standard_stream(path) {
        return "standard input".into();
    }
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
