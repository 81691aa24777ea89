//! `nichrome top`: a running card's rates.

mod rates;
mod screen;
mod view;

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use clap::Args;
use nichrome_port::InterfaceName;

use self::rates::Interval;
use self::screen::Screen;
use self::view::View;
use super::control;
use crate::{duration, number};

/// Lines between two headings.
const PAGE: u64 = 20;

/// Watch a running card: rates, sizes, losses and their reasons. Prints one line per interval if the output
/// is no terminal.
#[derive(Args)]
pub(crate) struct Top {
    /// The host interface of the card; not needed if there is only one card.
    #[arg(value_name = "NAME")]
    host: Option<InterfaceName>,
    /// The interval between updates.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,
    /// Number of updates before it ends.
    #[arg(long, value_name = "N", value_parser = number::whole(NonZeroU64::MIN..=NonZeroU64::MAX))]
    count: Option<NonZeroU64>,
}

impl Top {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut view: Box<dyn View> =
            if io::stdout().is_terminal() { Box::new(Screen::open()?) } else { Box::new(Lines(0)) };
        let mut before = control::find(self.host)?.report()?;
        let mut updates = 0;
        while view.wait(self.interval)?.is_continue() {
            let after = control::find(self.host)?.report()?;
            view.show(&Interval { before: &before, after: &after })?;
            before = after;
            updates += 1;
            if self.count.is_some_and(|count| updates >= count.get()) {
                break;
            }
        }
        Ok(())
    }
}

/// Output as lines of text, with their number.
struct Lines(u64);

impl View for Lines {
    fn wait(&mut self, interval: Duration) -> io::Result<ControlFlow<()>> {
        thread::sleep(interval);
        Ok(ControlFlow::Continue(()))
    }

    fn show(&mut self, interval: &Interval<'_>) -> io::Result<()> {
        let mut output = io::stdout().lock();
        if self.0.is_multiple_of(PAGE) {
            let headings = rates::COLUMNS.map(|(heading, _)| format!("{heading:>13}"));
            writeln!(output, "{:>8}{}", "up, s", headings.concat())?;
        }
        self.0 += 1;
        let total = interval.total();
        let values = rates::COLUMNS.map(|(_, value)| format!("{:>13}", value(&total)));
        writeln!(output, "{:>8.1}{}", interval.after.uptime_s, values.concat())?;
        output.flush()
    }
}
