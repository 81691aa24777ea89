//! Files for the pictures and the page, created before anything is measured, and removed if the measurement is interrupted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::page::page;
use super::plot;
use super::report::Report;
use crate::picture_file::PictureFile;
use crate::{failure, signals};

/// The files.
pub(super) struct Outputs {
    pictures: Vec<PictureFile>,
    page: Option<PictureFile>,
    /// Files and folders that did not exist before.
    new: Vec<PathBuf>,
}

impl Outputs {
    /// Creates a picture for each figure in `folder`, and the page.
    pub(super) fn create(
        folder: Option<&Path>,
        page: Option<&Path>,
        figures: &[&str],
    ) -> anyhow::Result<Self> {
        let mut outputs = Self { pictures: Vec::new(), page: None, new: Vec::new() };
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
        outputs.page = page.map(|path| outputs.file(path)).transpose()?;
        Ok(outputs)
    }

    fn file(&mut self, path: &Path) -> anyhow::Result<PictureFile> {
        if path.as_os_str() == "-" {
            return Err(failure::usage("--html needs the name of a file"));
        }
        let is_new = !path.exists();
        let file = PictureFile::create(path)?;
        if is_new {
            self.new.push(path.to_owned());
        }
        Ok(file)
    }

    /// From now on a signal removes the files that are new and ends the process.
    pub(super) fn remove_on_signals(&self) -> anyhow::Result<()> {
        let new = self.new.clone();
        signals::forward(&[SIGINT, SIGTERM, SIGHUP], move |signal| -> Result<(), ()> {
            for path in new.iter().rev() {
                // Someone else may have removed it, or put a file into the folder.
                let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
            }
            process::exit(128 + signal)
        })
    }

    /// Writes all files.
    pub(super) fn finish(self, report: &Report) -> anyhow::Result<()> {
        for (file, figure) in self.pictures.into_iter().zip(&report.figures) {
            file.finish(&plot::draw(figure)?)?;
        }
        self.page.map_or(Ok(()), |file| file.finish(&page(report)?))
    }
}
