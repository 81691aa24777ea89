//! Impairments from options, a TOML file, or requests to a running path: names with values, parsed by the
//! same rules.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use nichrome_sim::experiment::read_text;
use nichrome_wan::{Impairments, Jitter, ParseError, Probability, Samples, Trace};
use serde::{Deserialize, Serialize};

use crate::distinct::Distinct;
use crate::side::Side;
use crate::{failure, toml_file};

/// Options for the impairments, applied independently to each direction.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Impairments, in each direction")]
pub(crate) struct ImpairmentOptions {
    /// Delay of a packet: 40ms, 1.5ms, 50us. Applies to each direction, so the round trip takes twice as
    /// long.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    delay: Option<String>,
    /// Variation of the delay: 5ms (uniform), normal:5ms, pareto:5ms, pareto-normal:5ms, or file:SAMPLES with
    /// one time per line.
    #[arg(long, value_name = "JITTER", allow_hyphen_values = true)]
    jitter: Option<String>,
    /// Whether jitter may reorder packets: keep (the default; a packet waits for those before it, which
    /// raises the mean where packets are close together) or reorder (independent delays, as with netem).
    #[arg(long, value_name = "WHETHER")]
    jitter_order: Option<String>,
    /// Packet loss: 1%, gilbert:P,R, gilbert:P,R,LOSS_GOOD,LOSS_BAD, or packets:3,7,10-12.
    #[arg(long, value_name = "LOSS", allow_hyphen_values = true)]
    loss: Option<String>,
    /// Share of packets duplicated: 0.5%.
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    duplicate: Option<String>,
    /// Share of packets with a flipped bit: 0.1%.
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    corrupt: Option<String>,
    /// Share of packets held back while others overtake them: 1%, or 1%:5ms.
    #[arg(long, value_name = "SHARE[:TIME]", allow_hyphen_values = true)]
    reorder: Option<String>,
    /// Rate of the bottleneck: 10mbit, 1.5gbit. Ethernet headers count; preamble, frame check sequence and
    /// gaps do not.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// Rate of the bottleneck over time: a file in Mahimahi's format. Bytes of IP packets count.
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// Limit of the bottleneck's queue: 100p, 64kB.
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true)]
    queue: Option<String>,
    /// Active queue management: tail-drop (the default), codel or codel:TARGET,INTERVAL.
    #[arg(long, value_name = "AQM")]
    aqm: Option<String>,
    /// ECN marking: off (the default), mark (where CoDel would drop), or mark:30p (also above this queue
    /// length).
    #[arg(long, value_name = "WHEN")]
    ecn: Option<String>,
    /// Path MTU: the maximum IP packet length in bytes. Longer packets are dropped and their senders get an
    /// ICMP error, except RDMA devices; IPv4 packets without DF are fragmented. IPv6 packets of up to 1280
    /// bytes always pass.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    mtu: Option<String>,
    /// Maximum number of packets in flight.
    #[arg(long, value_name = "PACKETS", allow_hyphen_values = true)]
    limit: Option<String>,
    /// Order of the impairments: mtu,loss,corrupt,duplicate,rate,delay,reorder, or another.
    #[arg(long, value_name = "NAMES")]
    order: Option<String>,
    /// Impairment of the direction to the right only: loss=1%. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    to_right: Vec<String>,
    /// Impairment of the direction to the left only. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    to_left: Vec<String>,
    /// A TOML file of impairments by the names of these options; tables [to-right] and [to-left] apply to one
    /// direction. Paths in it are relative to the file. Options take precedence; 'none' removes an impairment
    /// of the file.
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
}

/// Impairments as text, in the order to apply them. `nichrome wan set` sends it serialized.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImpairmentSettings(Vec<Setting>);

/// One impairment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Setting {
    direction: Direction,
    name: String,
    value: String,
    /// The content of the file that the value names. The user's command reads the file, not the process of a
    /// running path to which it sends the setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Direction {
    Both,
    ToLeft,
    ToRight,
}

impl Direction {
    fn includes(self, to: Side) -> bool {
        match self {
            Self::Both => true,
            Self::ToLeft => to == Side::Left,
            Self::ToRight => to == Side::Right,
        }
    }

    /// Returns the option for an impairment of this direction.
    fn option(self, name: &str) -> String {
        match self {
            Self::Both => format!("--{name}"),
            Self::ToLeft => format!("--to-left {name}"),
            Self::ToRight => format!("--to-right {name}"),
        }
    }

    /// Returns the key for an impairment of this direction in a file.
    fn key(self, name: &str) -> String {
        match self {
            Self::Both => name.to_owned(),
            Self::ToLeft => format!("to-left.{name}"),
            Self::ToRight => format!("to-right.{name}"),
        }
    }
}

impl ImpairmentOptions {
    /// Collects the impairments of the file and the options, and reads the files that they name.
    pub(crate) fn settings(&self) -> anyhow::Result<ImpairmentSettings> {
        let mut given: Vec<_> = self
            .named()
            .into_iter()
            .filter_map(|(name, value)| {
                let value = value.clone()?;
                Some(Setting { direction: Direction::Both, name: name.into(), value, content: None })
            })
            .collect();
        for (direction, texts) in [(Direction::ToRight, &self.to_right), (Direction::ToLeft, &self.to_left)] {
            for setting in texts {
                let Some((name, value)) = setting.split_once('=') else {
                    let option = direction.option("NAME=VALUE");
                    let wrong = format!(
                        "'{setting}' is not an impairment of one direction: write {option}, such as loss=1%"
                    );
                    return Err(failure::usage(wrong));
                };
                given.push(Setting { direction, name: name.into(), value: value.into(), content: None });
            }
        }
        for setting in &mut given {
            let read = setting.read_file(Path::new(""));
            read.map_err(|error| setting.explained(error))?;
        }
        let mut settings = match &self.config {
            Some(file) => from_file(file).with_context(|| file.display().to_string())?,
            None => Vec::new(),
        };
        settings.extend(given);
        Ok(ImpairmentSettings(settings))
    }

    /// Returns the given settings, and the impairments of both directions, the left one's first. Adds the
    /// files that they were read from to `files`.
    ///
    /// # Errors
    /// The impairments are invalid, or the command also writes one of their files.
    pub(crate) fn impairments(
        &self,
        files: &mut Distinct,
    ) -> anyhow::Result<(ImpairmentSettings, [Impairments; 2])> {
        let settings = self.settings()?;
        let mut impairments = [Impairments::default(), Impairments::default()];
        settings.apply(&mut impairments)?;
        self.add_to(&settings, files)?;
        Ok((settings, impairments))
    }

    /// Adds the files to read: the file of `--config`, and those that impairments name.
    fn add_to(&self, settings: &ImpairmentSettings, files: &mut Distinct) -> anyhow::Result<()> {
        self.config.iter().try_for_each(|path| files.read("--config", path))?;
        for setting in &settings.0 {
            match setting.file() {
                Some(("file:", path)) => files.read("--jitter", Path::new(path))?,
                Some((_, path)) => files.read("--trace", Path::new(path))?,
                None => {}
            }
        }
        Ok(())
    }

    /// Returns the position of an impairment among the options.
    pub(crate) fn place(name: &str) -> Option<usize> {
        Self::default().named().iter().position(|(option, _)| *option == name)
    }

    fn named(&self) -> [(&'static str, &Option<String>); 15] {
        [
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("jitter-order", &self.jitter_order),
            ("loss", &self.loss),
            ("duplicate", &self.duplicate),
            ("corrupt", &self.corrupt),
            ("reorder", &self.reorder),
            ("rate", &self.rate),
            ("trace", &self.trace),
            ("queue", &self.queue),
            ("aqm", &self.aqm),
            ("ecn", &self.ecn),
            ("mtu", &self.mtu),
            ("limit", &self.limit),
            ("order", &self.order),
        ]
    }
}

impl ImpairmentSettings {
    /// Returns true if no impairment is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if all given impairments have one of these names, and none is read from a file.
    pub(crate) fn is_within(&self, names: &[&str]) -> bool {
        self.0
            .iter()
            .all(|setting| names.contains(&setting.name.as_str()) && !setting.value.starts_with("file:"))
    }

    /// Warns about settings that are likely mistakes.
    pub(crate) fn warn(&self, impairments: &[Impairments; 2]) {
        for what in self.without_effect(impairments).into_iter().chain(self.likely_percent()) {
            failure::warn(format_args!("{what}"));
        }
    }

    /// Returns the first impairment that has no effect without another one, with the missing one.
    pub(crate) fn without_effect(&self, impairments: &[Impairments; 2]) -> Option<String> {
        let lacks = |setting: &Setting, of: &Impairments| match setting.name.as_str() {
            _ if setting.value == "none" => None,
            "queue" | "aqm" | "ecn" if of.rate.is_none() && of.trace.is_none() => Some("--rate or --trace"),
            "jitter-order" if of.jitter.is_none() => Some("--jitter"),
            _ => None,
        };
        self.0.iter().find_map(|setting| {
            let directions = Side::BOTH.into_iter().zip(impairments);
            let meant = directions.filter(|(to, _)| setting.direction.includes(*to));
            let lacking = meant.map(|(_, of)| lacks(setting, of)).collect::<Option<Vec<_>>>()?;
            Some(format!("--{} does nothing without {}", setting.name, lacking.first()?))
        })
    }

    /// Returns a warning for the first bare fraction of 0.1 or more: other programs interpret such a number
    /// as percent.
    pub(crate) fn likely_percent(&self) -> Option<String> {
        self.0.iter().find_map(|Setting { direction, name, value, .. }| {
            if !["loss", "duplicate", "corrupt", "reorder"].contains(&name.as_str()) {
                return None;
            }
            let share = value.split(':').next()?;
            let bare: Probability = share.parse().ok().filter(|_| !share.ends_with('%'))?;
            let percent = (bare.fraction() >= 0.1).then(|| bare.to_string())?;
            let (option, percent) = (direction.option(name), percent.trim_end_matches('%'));
            Some(format!("{option} {share} is {percent} %; a number of percent is {share}%"))
        })
    }

    /// Fails for an invalid value or file. Does not check combinations, which depend on the impairments that
    /// the settings are applied to.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.0.iter().try_for_each(|setting| setting.apply_option(&mut Impairments::default()))
    }

    /// Applies these impairments to `impairments`, the left direction's first.
    ///
    /// # Errors
    /// A usage error, unless the content of a file is invalid.
    pub(crate) fn apply(&self, impairments: &mut [Impairments; 2]) -> anyhow::Result<()> {
        for setting in &self.0 {
            for (to, impairments) in Side::BOTH.into_iter().zip(&mut *impairments) {
                if setting.direction.includes(to) {
                    setting.apply_option(impairments)?;
                }
            }
        }
        for (to, impairments) in Side::BOTH.into_iter().zip(&*impairments) {
            let valid = impairments.validate().with_context(|| format!("to the {}", to.name()));
            valid.map_err(failure::as_usage)?;
        }
        Ok(())
    }
}

impl Setting {
    /// Applies the value of an option.
    ///
    /// # Errors
    /// As [`ImpairmentSettings::apply`].
    fn apply_option(&self, to: &mut Impairments) -> anyhow::Result<()> {
        self.apply(to).map_err(|error| self.explained(error))
    }

    /// Adds the option's name to an error, and makes it a usage error unless the value names a file.
    fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        let error = error.context(self.direction.option(&self.name));
        let is_of_file = self.file().is_some_and(|(_, path)| !path.is_empty());
        if is_of_file { error } else { failure::as_usage(error) }
    }

    fn apply(&self, to: &mut Impairments) -> anyhow::Result<()> {
        let nothing = Impairments::default();
        // 'none' restores the default.
        let value = Some(self.value.as_str()).filter(|value| *value != "none");
        match self.name.as_str() {
            "delay" => to.delay = parsed(value)?.unwrap_or(nothing.delay),
            "jitter" => to.jitter = value.map(|value| self.jitter(value)).transpose()?,
            "jitter-order" => to.jitter_order = parsed(value)?.unwrap_or(nothing.jitter_order),
            "loss" => to.loss = parsed(value)?,
            "duplicate" => to.duplicate = parsed(value)?.unwrap_or(nothing.duplicate),
            "corrupt" => to.corrupt = parsed(value)?.unwrap_or(nothing.corrupt),
            "reorder" => to.reorder = parsed(value)?,
            "rate" => to.rate = parsed(value)?,
            "trace" => to.trace = value.map(|_| self.parsed_file(str::parse::<Trace>)).transpose()?,
            "queue" => to.queue = parsed(value)?.unwrap_or(nothing.queue),
            "aqm" => to.aqm = parsed(value)?.unwrap_or(nothing.aqm),
            "ecn" => to.ecn = parsed(value)?.unwrap_or(nothing.ecn),
            "mtu" => to.mtu = parsed(value)?,
            "limit" => to.limit = parsed(value)?.unwrap_or(nothing.limit),
            "order" => to.order = parsed(value)?.unwrap_or(nothing.order),
            _ => {
                let names = ImpairmentOptions::default().named().map(|(name, _)| name).join(", ");
                bail!("there is no such impairment: the impairments are {names}");
            }
        }
        Ok(())
    }

    /// Returns the path of the file that the value names, if any, and the text before it.
    fn file(&self) -> Option<(&'static str, &str)> {
        match (self.name.as_str(), self.value.strip_prefix("file:")) {
            ("jitter", Some(path)) => Some(("file:", path)),
            ("trace", _) if self.value != "none" => Some(("", &self.value)),
            _ => None,
        }
    }

    /// Reads the file that the value names, if any, and makes its path absolute. The path is relative to
    /// `folder`.
    fn read_file(&mut self, folder: &Path) -> anyhow::Result<()> {
        let Some((prefix, path)) = self.file() else { return Ok(()) };
        ensure!(!path.is_empty(), "the name of a file is missing");
        let path = std::path::absolute(folder.join(path))?;
        let content = read_text(&path).with_context(|| format!("cannot read {}", path.display()))?;
        self.value = format!("{prefix}{}", path.display());
        self.content = Some(content);
        Ok(())
    }

    /// Parses the content of the file that the value names.
    fn parsed_file<T, E: Error + Send + Sync + 'static>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> anyhow::Result<T> {
        let (_, path) = self.file().unwrap_or_default();
        let content = self.content.as_ref().with_context(|| format!("the content of {path} is missing"))?;
        parse(content).with_context(|| path.to_owned())
    }

    fn jitter(&self, value: &str) -> anyhow::Result<Jitter> {
        if self.file().is_some() {
            return self.parsed_file(Samples::parse).map(Jitter::Samples);
        }
        value.parse().map_err(|error| anyhow!("{error}; or file: followed by the name of a file of times"))
    }
}

fn parsed<T: FromStr<Err = ParseError>>(value: Option<&str>) -> Result<Option<T>, ParseError> {
    value.map(str::parse).transpose()
}

/// Parses the settings of a TOML file.
fn from_file(file: &Path) -> anyhow::Result<Vec<Setting>> {
    let table = toml_file::parse(&read_text(file).context("cannot read it")?)?;
    let mut settings = Vec::new();
    for (key, value) in &table {
        let direction = match key.as_str() {
            "to-right" => Direction::ToRight,
            "to-left" => Direction::ToLeft,
            _ => {
                settings.push(setting(Direction::Both, key, value)?);
                continue;
            }
        };
        let Some(table) = value.as_table() else { bail!("{key} must be a table, [{key}]") };
        for (key, value) in table {
            settings.push(setting(direction, key, value)?);
        }
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    for setting in &mut settings {
        // The caller adds the file's name to errors.
        let key = setting.direction.key(&setting.name);
        setting.read_file(folder).with_context(|| key.clone())?;
        setting.apply(&mut Impairments::default()).context(key)?;
    }
    // Settings for both directions come first, regardless of their position.
    settings.sort_by_key(|setting| setting.direction != Direction::Both);
    Ok(settings)
}

fn setting(direction: Direction, name: &str, value: &toml::Value) -> anyhow::Result<Setting> {
    let value = match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Table(_) => bail!("there is no table [{name}]: the tables are [to-right] and [to-left]"),
        _ => bail!("{} must be a text or a number, such as \"40ms\"", direction.key(name)),
    };
    Ok(Setting { direction, name: name.into(), value, content: None })
}
