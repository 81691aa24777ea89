//! The output files of pictures and page: created before the measurement, and removed if it is interrupted.

use std::path::Path;

use super::page::page;
use super::plot;
use super::report::Report;
use crate::page::{PageFile, PageOption};
use crate::picture_file::{PictureFile, PictureFolder};

/// The output files.
pub(super) struct Outputs {
    pictures: Vec<PictureFile>,
    page: PageFile,
    /// Dropped last: unfinished pictures are in it.
    _folder: Option<PictureFolder>,
}

impl Outputs {
    /// Creates a picture for each figure in `folder`, and the page.
    pub(super) fn create(folder: Option<&Path>, page: &PageOption, figures: &[&str]) -> anyhow::Result<Self> {
        let created = folder.map(PictureFolder::create).transpose()?;
        let mut pictures = Vec::new();
        if let Some(folder) = folder {
            for name in figures {
                pictures.push(PictureFile::create(&folder.join(format!("{name}.svg")))?);
            }
        }
        Ok(Self { pictures, page: page.create()?, _folder: created })
    }

    /// Writes all files.
    pub(super) fn finish(self, report: &Report, seed: u64) -> anyhow::Result<()> {
        for (file, figure) in self.pictures.into_iter().zip(&report.figures) {
            file.finish(&plot::draw(figure)?)?;
        }
        self.page.finish(|| page(report, seed))
    }
}
