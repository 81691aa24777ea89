//! The output files of pictures and page: created before the measurement, and removed if it is interrupted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::page::page;
use super::plot;
use super::report::Report;
use crate::page::{PageFile, PageOption};
use crate::picture_file::PictureFile;
use crate::signals;

/// The output files.
pub(super) struct Outputs {
    pictures: Vec<PictureFile>,
    page: PageFile,
    /// Files and folders that the command has created.
    new: Vec<PathBuf>,
}

impl Outputs {
    /// Creates a picture for each figure in `folder`, and the page.
    pub(super) fn create(folder: Option<&Path>, page: &PageOption, figures: &[&str]) -> anyhow::Result<Self> {
        let mut outputs = Self { pictures: Vec::new(), page: PageFile::default(), new: Vec::new() };
        if let Some(folder) = folder {
            if !folder.exists() {
                fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
                outputs.new.push(folder.to_owned());
            }
            for name in figures {
                let file = outputs.file(&folder.join(format!("{name}.svg")))?;
                outputs.pictures.push(file);
            }
        }
        let new = page.path().filter(|path| !path.exists()).map(Path::to_owned);
        outputs.page = page.create()?;
        outputs.new.extend(new);
        Ok(outputs)
    }

    fn file(&mut self, path: &Path) -> anyhow::Result<PictureFile> {
        let is_new = !path.exists();
        let file = PictureFile::create(path)?;
        if is_new {
            self.new.push(path.to_owned());
        }
        Ok(file)
    }

    /// Removes the created files and ends the process on a signal from now on.
    pub(super) fn remove_on_signals(&self) -> anyhow::Result<()> {
        let new = self.new.clone();
        signals::forward(&[SIGINT, SIGTERM, SIGHUP], move |signal| -> Result<(), ()> {
            for path in new.iter().rev() {
                // Another process may have removed it, or put a file into the folder.
                let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
            }
            process::exit(128 + signal)
        })
    }

    /// Writes all files.
    pub(super) fn finish(self, report: &Report, seed: u64) -> anyhow::Result<()> {
        for (file, figure) in self.pictures.into_iter().zip(&report.figures) {
            file.finish(&plot::draw(figure)?)?;
        }
        self.page.finish(|| page(report, seed))
    }
}
