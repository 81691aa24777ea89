//! The experiment and settings of a command line.

use std::path::Path;

use anyhow::Context;
use clap::Args;
use nichrome_sim::experiment::{BUILT_IN, Definition, Source};

use crate::failure::{as_usage, usage};

/// An experiment with changed parameters.
#[derive(Args)]
pub(super) struct Experiment {
    /// The name of an experiment (nichrome sim list), or a file that ends in .toml
    #[arg(value_name = "NAME|FILE")]
    name: String,
    /// Set a parameter, such as dma-start=5us; the parameter of the x axis takes several values:
    /// connections=1,8,64
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

impl Experiment {
    /// Returns the path of the experiment's file, if it is not built in.
    pub(super) fn file(&self) -> Option<&Path> {
        Some(Path::new(&self.name)).filter(|path| path.extension().is_some_and(|end| end == "toml"))
    }

    /// Fails if a setting is of this parameter; `why` is the reason.
    ///
    /// # Errors
    /// There is such a setting.
    pub(super) fn refuse_setting(&self, key: &str, why: &str) -> anyhow::Result<()> {
        let is_of = |setting: &&String| setting.split_once('=').is_some_and(|(of, _)| of.trim() == key);
        match self.settings.iter().find(is_of) {
            Some(setting) => Err(usage(format!("--set {setting}: {why}"))),
            None => Ok(()),
        }
    }

    /// Loads the experiment and applies the settings.
    pub(super) fn load(&self) -> anyhow::Result<Definition> {
        let mut definition = Source::find(&self.name, Path::new(""), &BUILT_IN)?.load(&BUILT_IN)?;
        for setting in &self.settings {
            let set = definition.set(setting).with_context(|| format!("{}, --set {setting}", self.name));
            set.map_err(as_usage)?;
        }
        Ok(definition)
    }
}
