//! The `--html` option and its file, which is created before the work, so that the command fails early.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Page;
use crate::failure;
use crate::picture_file::{self, PictureFile};

/// The `--html` option.
#[derive(Args)]
pub(crate) struct PageOption {
    /// Write a page for a browser, with figures to zoom, tables to sort, and the command, machine and seed.
    #[arg(long, value_name = "FILE.html", value_parser = picture_file::html())]
    html: Option<PathBuf>,
}

/// The page's file, if `--html` is given.
#[derive(Default)]
pub(crate) struct PageFile(Option<PictureFile>);

impl PageOption {
    /// Returns the file's path.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.html.as_deref()
    }

    /// Returns the option's name and the file's path.
    pub(crate) fn output(&self) -> (&'static str, Option<&Path>) {
        ("--html", self.path())
    }

    /// Creates the file.
    ///
    /// # Errors
    /// The file cannot be written, or the path is `-`.
    pub(crate) fn create(&self) -> anyhow::Result<PageFile> {
        let file = self.path().map(|path| {
            if path.as_os_str() == "-" {
                return Err(failure::usage("--html needs the name of a file"));
            }
            PictureFile::create(path)
        });
        file.transpose().map(PageFile)
    }
}

impl PageFile {
    /// Writes the page.
    pub(crate) fn finish(self, page: impl FnOnce() -> anyhow::Result<Page>) -> anyhow::Result<()> {
        self.0.map_or(Ok(()), |file| file.finish(&page()?.html()))
    }
}
