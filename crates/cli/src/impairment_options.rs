//! Impairments as they are asked for: by options, in a TOML file, or while the path is in use. All three are names with
//! values, read by the same rules.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use nichrome_wan::{Impairments, Jitter, ParseError, Samples, Trace};
use serde::{Deserialize, Serialize};

use crate::side::Side;
use crate::{failure, text_file, toml_file};

/// What the path does to packets, in each direction by itself.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Impairments, in each direction")]
pub(crate) struct ImpairmentOptions {
    /// How long a packet takes: 40ms, 1.5ms, 50us. A round trip takes twice that.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    delay: Option<String>,
    /// By how much that varies: 5ms (uniform), normal:5ms, pareto:5ms, pareto-normal:5ms, or file:SAMPLES, a time a line.
    #[arg(long, value_name = "JITTER", allow_hyphen_values = true)]
    jitter: Option<String>,
    /// Whether jitter may change the order of packets: keep (the default; a packet waits for those before it, which raises
    /// the mean where packets are close together) or reorder (each has its own delay, as with netem).
    #[arg(long, value_name = "WHETHER")]
    jitter_order: Option<String>,
    /// Packets lost: 1%, gilbert:P,R, gilbert:P,R,LOSS_GOOD,LOSS_BAD, or packets:3,7,10-12.
    #[arg(long, value_name = "LOSS", allow_hyphen_values = true)]
    loss: Option<String>,
    /// Packets that come twice: 0.5%.
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    duplicate: Option<String>,
    /// Packets in which a bit is flipped: 0.1%.
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    corrupt: Option<String>,
    /// Packets held back so that others overtake them: 1%, or 1%:5ms.
    #[arg(long, value_name = "SHARE[:TIME]", allow_hyphen_values = true)]
    reorder: Option<String>,
    /// The bottleneck's rate: 10mbit, 1.5gbit. Ethernet headers count; preamble, frame check sequence and gaps do not.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// The bottleneck's rate over time: a file in Mahimahi's format. Bytes of IP packets count.
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// How much may wait for the bottleneck: 100p, 64kB.
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true)]
    queue: Option<String>,
    /// How the queue is kept short: tail-drop (the default), codel or codel:TARGET,INTERVAL.
    #[arg(long, value_name = "AQM")]
    aqm: Option<String>,
    /// When ECN marks instead: off (the default), mark (where CoDel would drop), or mark:30p.
    #[arg(long, value_name = "WHEN")]
    ecn: Option<String>,
    /// The longest IP packet that gets through, in bytes. Longer ones are dropped, and their senders get an ICMP error; IPv4
    /// packets without DF are fragmented. IPv6 packets of 1280 bytes get through whatever it is.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    mtu: Option<String>,
    /// How many packets may be on their way at once.
    #[arg(long, value_name = "PACKETS", allow_hyphen_values = true)]
    limit: Option<String>,
    /// The order of impairments: mtu,loss,corrupt,duplicate,rate,delay,reorder, or another.
    #[arg(long, value_name = "NAMES")]
    order: Option<String>,
    /// An impairment of the direction to the right only: loss=1%. May be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    to_right: Vec<String>,
    /// An impairment of the direction to the left only.
    #[arg(long, value_name = "NAME=VALUE")]
    to_left: Vec<String>,
    /// A TOML file of impairments by the names of these options; tables [to-right] and [to-left] hold those of one
    /// direction. Files that it names are looked for beside it. Options come on top of it; 'none' takes away what it
    /// asks for.
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
}

/// Impairments as text, to be read in this order. Serialized, it is what `nichrome wan set` sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked(Vec<Setting>);

/// One impairment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Setting {
    direction: Direction,
    name: String,
    value: String,
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

    /// How the options of this direction are given.
    fn option(self, name: &str) -> String {
        match self {
            Self::Both => format!("--{name}"),
            Self::ToLeft => format!("--to-left {name}"),
            Self::ToRight => format!("--to-right {name}"),
        }
    }

    /// How they stand in a file.
    fn key(self, name: &str) -> String {
        match self {
            Self::Both => name.to_owned(),
            Self::ToLeft => format!("to-left.{name}"),
            Self::ToRight => format!("to-right.{name}"),
        }
    }
}

impl ImpairmentOptions {
    /// What is asked for, from the file and the options. Files that it names are named by their whole path.
    pub(crate) fn asked(&self) -> anyhow::Result<Asked> {
        let mut given: Vec<_> = self
            .named()
            .into_iter()
            .filter_map(|(name, value)| {
                let value = value.clone()?;
                Some(Setting { direction: Direction::Both, name: name.into(), value })
            })
            .collect();
        for (direction, texts) in [(Direction::ToRight, &self.to_right), (Direction::ToLeft, &self.to_left)] {
            for setting in texts {
                let Some((name, value)) = setting.split_once('=') else {
                    let option = direction.option("NAME=VALUE");
                    let wrong = format!(
                        "'{setting}' is no impairment of one direction: write {option}, such as loss=1%"
                    );
                    return Err(failure::usage(wrong));
                };
                given.push(Setting { direction, name: name.into(), value: value.into() });
            }
        }
        for setting in &mut given {
            setting.make_path_absolute(Path::new(""))?;
        }
        let mut settings = match &self.config {
            Some(file) => from_file(file).with_context(|| file.display().to_string())?,
            None => Vec::new(),
        };
        settings.extend(given);
        Ok(Asked(settings))
    }

    /// How manieth of the options the impairment of this name is.
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

impl Asked {
    /// Whether nothing is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which impairment, the first of those asked for, does nothing without another one, and which that is.
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

    /// The first share that is a bare number of 0.1 or more, which other programs take for so many percent.
    pub(crate) fn likely_percent(&self) -> Option<String> {
        self.0.iter().find_map(|Setting { direction, name, value }| {
            if !["loss", "duplicate", "corrupt", "reorder"].contains(&name.as_str()) {
                return None;
            }
            let share = value.split(':').next()?;
            let percent =
                share.parse::<f64>().ok().filter(|fraction| (0.1..=1.0).contains(fraction))? * 100.0;
            let option = direction.option(name);
            Some(format!("{option} {share} is {percent} %; a number of percent is {share}%"))
        })
    }

    /// Puts on top of `impairments`, the left direction's first, what is asked for.
    pub(crate) fn apply(&self, impairments: &mut [Impairments; 2]) -> anyhow::Result<()> {
        for setting in &self.0 {
            for (to, impairments) in Side::BOTH.into_iter().zip(&mut *impairments) {
                if setting.direction.includes(to) {
                    setting.apply(impairments).with_context(|| setting.direction.option(&setting.name))?;
                }
            }
        }
        for (to, impairments) in Side::BOTH.into_iter().zip(&*impairments) {
            impairments.validate().with_context(|| format!("to the {}", to.name()))?;
        }
        Ok(())
    }
}

impl Setting {
    fn apply(&self, to: &mut Impairments) -> anyhow::Result<()> {
        let nothing = Impairments::default();
        // What is not given is as it is without the option.
        let value = Some(self.value.as_str()).filter(|value| *value != "none");
        match self.name.as_str() {
            "delay" => to.delay = parsed(value)?.unwrap_or(nothing.delay),
            "jitter" => to.jitter = value.map(jitter).transpose()?,
            "jitter-order" => to.jitter_order = parsed(value)?.unwrap_or(nothing.jitter_order),
            "loss" => to.loss = parsed(value)?,
            "duplicate" => to.duplicate = parsed(value)?.unwrap_or(nothing.duplicate),
            "corrupt" => to.corrupt = parsed(value)?.unwrap_or(nothing.corrupt),
            "reorder" => to.reorder = parsed(value)?,
            "rate" => to.rate = parsed(value)?,
            "trace" => to.trace = value.map(trace).transpose()?,
            "queue" => to.queue = parsed(value)?.unwrap_or(nothing.queue),
            "aqm" => to.aqm = parsed(value)?.unwrap_or(nothing.aqm),
            "ecn" => to.ecn = parsed(value)?.unwrap_or(nothing.ecn),
            "mtu" => to.mtu = parsed(value)?,
            "limit" => to.limit = parsed(value)?.unwrap_or(nothing.limit),
            "order" => to.order = parsed(value)?.unwrap_or(nothing.order),
            _ => {
                let names = ImpairmentOptions::default().named().map(|(name, _)| name).join(", ");
                bail!("there is no such impairment: there are {names}");
            }
        }
        Ok(())
    }

    /// A path is relative to `folder`, and that to where the command was given, which is not where a running path was
    /// started. One that is empty stays so: it cannot be read.
    fn make_path_absolute(&mut self, folder: &Path) -> anyhow::Result<()> {
        let (prefix, path) = match (self.name.as_str(), self.value.strip_prefix("file:")) {
            ("jitter", Some(path)) => ("file:", path),
            ("trace", _) if self.value != "none" => ("", self.value.as_str()),
            _ => return Ok(()),
        };
        if !path.is_empty() {
            let absolute =
                std::path::absolute(folder.join(path)).with_context(|| self.direction.option(&self.name))?;
            self.value = format!("{prefix}{}", absolute.display());
        }
        Ok(())
    }
}

fn parsed<T: FromStr<Err = ParseError>>(value: Option<&str>) -> Result<Option<T>, ParseError> {
    value.map(str::parse).transpose()
}

fn jitter(value: &str) -> anyhow::Result<Jitter> {
    match value.strip_prefix("file:") {
        Some(path) => Ok(Jitter::Samples(Samples::parse(&read(path)?).with_context(|| path.to_owned())?)),
        None => value.parse().map_err(|error| anyhow!("{error}; or file: and the name of a file of times")),
    }
}

fn trace(path: &str) -> anyhow::Result<Trace> {
    read(path)?.parse().with_context(|| path.to_owned())
}

fn read(path: &str) -> anyhow::Result<String> {
    ensure!(!path.is_empty(), "the name of a file is missing");
    text_file::read(path).with_context(|| format!("cannot read {path}"))
}

/// The settings in a TOML file.
fn from_file(file: &Path) -> anyhow::Result<Vec<Setting>> {
    let table = toml_file::parse(&text_file::read(file).context("cannot read it")?)?;
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
        let Some(table) = value.as_table() else { bail!("{key} is a table, [{key}]") };
        for (key, value) in table {
            settings.push(setting(direction, key, value)?);
        }
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    for setting in &mut settings {
        setting.make_path_absolute(folder)?;
        // What is wrong here is told with the name of the file.
        let key = setting.direction.key(&setting.name);
        setting.apply(&mut Impairments::default()).context(key)?;
    }
    // What is for both directions comes first, wherever it stands.
    settings.sort_by_key(|setting| setting.direction != Direction::Both);
    Ok(settings)
}

fn setting(direction: Direction, name: &str, value: &toml::Value) -> anyhow::Result<Setting> {
    let value = match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Table(_) => bail!("there is no table [{name}]: there are [to-right] and [to-left]"),
        _ => bail!("{} is a text or a number, such as \"40ms\"", direction.key(name)),
    };
    Ok(Setting { direction, name: name.into(), value })
}
