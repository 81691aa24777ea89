//! Which engine, and with what configuration.

use std::time::Duration;

use clap::{Args, ValueEnum};
use nichrome_lro::{
    ActiveAck, BadChecksum, Config, Hold, Medium, NetfpgaConfig, NpuConfig, Profile, ProfileConfig, PshRule,
    Rules,
};

use crate::duration;
use crate::failure;

/// The hold time of `gro` and `netfpga`: how long cards typically delay an interrupt.
const INTERRUPT_MODERATION: Duration = Duration::from_micros(50);

/// The options that configure an engine.
#[derive(Args)]
pub(crate) struct EngineOptions {
    /// How long segments wait for more, such as 50us or 5ms [default: 50us, with gro on a live card until the receive
    /// batch ends; npu: ten average intervals, at most 1ms].
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    hold: Option<Duration>,
    /// How long segments wait for a gap before them to be filled (npu only) [default: 500us, or as --hold].
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    reorder_hold: Option<Duration>,
    /// The largest IP packet that is made, in bytes, from 576 to 65535.
    #[arg(long, value_name = "N", default_value_t = 65_535, value_parser = clap::value_parser!(u32).range(576..=65_535))]
    max_bytes: u32,
    /// Whether PSH ends an aggregate or is held like other data (npu only) [default: hold].
    #[arg(long, value_name = "RULE")]
    psh: Option<Psh>,
    /// Whether npu keeps connections alive where the paper's rules break them, or does as written [default: safe].
    #[arg(long, value_name = "RULES")]
    rules: Option<RuleSet>,
    /// When the card acknowledges data by itself (npu only) [default: off].
    #[arg(long, value_name = "MODE")]
    active_ack: Option<Acknowledge>,
    /// What happens to segments with a wrong checksum [default: pass for gro, drop for netfpga and npu].
    #[arg(long, value_name = "ACTION")]
    bad_checksum: Option<Action>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Psh {
    End,
    Hold,
}

#[derive(Clone, Copy, ValueEnum)]
enum RuleSet {
    Safe,
    Paper,
}

#[derive(Clone, Copy, ValueEnum)]
enum Acknowledge {
    Off,
    Paper,
    Safe,
}

#[derive(Clone, Copy, ValueEnum)]
enum Action {
    Drop,
    Pass,
}

/// Reads a profile; the error lists those that there are.
pub(crate) fn profile(name: &str) -> Result<Profile, nichrome_lro::UnknownProfile> {
    name.parse()
}

/// The profile as it stands by default.
pub(crate) fn default_profile_config(profile: Profile) -> ProfileConfig {
    match profile {
        Profile::Gro => ProfileConfig::Gro(Hold::For(INTERRUPT_MODERATION)),
        Profile::Netfpga => ProfileConfig::Netfpga(NetfpgaConfig::with_timer(INTERRUPT_MODERATION)),
        Profile::Npu => ProfileConfig::Npu(NpuConfig::default()),
    }
}

impl EngineOptions {
    /// What every engine is configured with.
    pub(crate) fn config(&self, medium: Medium) -> Config {
        let bad_checksum = self.bad_checksum.map(|action| match action {
            Action::Drop => BadChecksum::Drop,
            Action::Pass => BadChecksum::Pass,
        });
        Config { medium, bad_checksum, max_bytes: self.max_bytes, ..Config::default() }
    }

    /// A profile with its own configuration, the one that `default` gives it where no option says otherwise.
    ///
    /// # Errors
    /// An option is given that the profile does not have.
    pub(crate) fn profile_config(&self, default: ProfileConfig) -> anyhow::Result<ProfileConfig> {
        if default.profile() != Profile::Npu {
            self.refuse_npu_options(default.profile())?;
        }
        Ok(match (default, self.hold) {
            (ProfileConfig::Gro(default), hold) => ProfileConfig::Gro(hold.map_or(default, Hold::For)),
            (ProfileConfig::Netfpga(default), hold) => {
                ProfileConfig::Netfpga(NetfpgaConfig { timer: hold.unwrap_or(default.timer), ..default })
            }
            (ProfileConfig::Npu(default), hold) => {
                ProfileConfig::Npu(self.npu_config(hold.map_or(default, NpuConfig::with_hold)))
            }
        })
    }

    /// Whether the card is to acknowledge by itself.
    pub(crate) fn acknowledges(&self) -> bool {
        !matches!(self.active_ack, None | Some(Acknowledge::Off))
    }

    /// Whether the paper's rules apply, which can break connections.
    pub(crate) fn has_paper_rules(&self) -> bool {
        matches!(self.rules, Some(RuleSet::Paper))
    }

    fn npu_config(&self, held: NpuConfig) -> NpuConfig {
        NpuConfig {
            reorder_hold: self.reorder_hold.unwrap_or(held.reorder_hold),
            psh: self.psh.map_or(held.psh, |psh| match psh {
                Psh::End => PshRule::End,
                Psh::Hold => PshRule::Hold,
            }),
            rules: self.rules.map_or(held.rules, |rules| match rules {
                RuleSet::Safe => Rules::Safe,
                RuleSet::Paper => Rules::Paper,
            }),
            active_ack: self.active_ack.map_or(held.active_ack, |mode| match mode {
                Acknowledge::Off => ActiveAck::Off,
                Acknowledge::Paper => ActiveAck::Paper,
                Acknowledge::Safe => ActiveAck::Safe,
            }),
            ..held
        }
    }

    /// Refuses what configures an engine, where there is none.
    ///
    /// # Errors
    /// An option is given.
    pub(crate) fn refuse_all(&self) -> anyhow::Result<()> {
        let options = [
            ("--hold", self.hold.is_some()),
            ("--psh", self.psh.is_some()),
            ("--reorder-hold", self.reorder_hold.is_some()),
            ("--rules", self.rules.is_some()),
            ("--active-ack", self.acknowledges()),
            ("--bad-checksum", self.bad_checksum.is_some()),
        ];
        match options.iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(failure::usage(format!("{name} is for an engine, and --profile none has none")))
            }
            None => Ok(()),
        }
    }

    fn refuse_npu_options(&self, profile: Profile) -> anyhow::Result<()> {
        let why_no_psh = match profile {
            Profile::Gro => "gro always ends an aggregate on PSH, or it would not be lossless",
            Profile::Netfpga | Profile::Npu => "netfpga passes segments with PSH untouched",
        };
        let options = [
            ("--psh", self.psh.is_some(), why_no_psh),
            ("--reorder-hold", self.reorder_hold.is_some(), "no other reorders"),
            ("--rules", self.rules.is_some(), "the others have one set of rules"),
            ("--active-ack", self.active_ack.is_some(), "no other acknowledges"),
        ];
        match options.iter().find(|(_, given, _)| *given) {
            Some((name, _, why)) => Err(failure::usage(format!("{name} is for the npu profile only: {why}"))),
            None => Ok(()),
        }
    }
}
