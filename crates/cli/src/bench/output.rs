//! Output of a benchmark's results: text or JSON, and an HTML page.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::page::{Page, PageFile, PageOption};

/// Seed in the origin of a page: only generated traffic is random, and it is the same in every run.
const SEED: &str = "none: the load is the same in every run";

/// The options.
#[derive(Args)]
pub(super) struct OutputOptions {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: PageOption,
}

/// Where results go.
pub(super) struct Output {
    json: bool,
    page: PageFile,
}

impl OutputOptions {
    /// Returns the option's name and the path of the page.
    pub(super) fn page(&self) -> (&'static str, Option<&Path>) {
        self.page.output()
    }

    /// Creates the page's file, before anything is measured.
    pub(super) fn open(&self) -> anyhow::Result<Output> {
        Ok(Output { json: self.json, page: self.page.create()? })
    }
}

impl Output {
    /// Prints a report and writes its page, to which `figures` adds the charts.
    pub(super) fn finish(
        self,
        title: &str,
        report: &impl Serialize,
        text: impl Display,
        figures: impl FnOnce(&mut Page) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let text = if self.json { serde_json::to_string_pretty(report)? } else { text.to_string() };
        // Returned last: results that cannot be printed are still in the page.
        let printed = writeln!(io::stdout(), "{}", text.trim_end()).context("cannot print the results");
        self.page.finish(|| {
            let mut page = Page::new(title).with("seed", SEED);
            figures(&mut page)?;
            page.report(report)?;
            Ok(page)
        })?;
        printed
    }
}
