//! Options that select and configure an engine.

use std::str::FromStr;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use nichrome_lro::{
    ActiveAck, BadChecksum, Config, Hold, Medium, NetfpgaConfig, NpuConfig, Profile, ProfileConfig, PshRule,
    Rules,
};

use crate::duration;
use crate::failure;
use crate::named_values::named_values;
use crate::number;

/// Hold time of `gro` and `netfpga`: typical interrupt moderation of cards.
const INTERRUPT_MODERATION: Duration = Duration::from_micros(50);

/// Options of an engine.
#[derive(Clone, Args)]
pub(crate) struct EngineOptions {
    /// Maximum time that segments are held, such as 50us or 5ms [default: 50us; with gro on a live card until
    /// the receive batch ends; npu: ten average intervals, at most 1ms].
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    hold: Option<Duration>,
    /// Maximum time that segments behind a gap are held (npu only) [default: 500us, or as --hold; with
    /// --rules paper 60s].
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    reorder_hold: Option<Duration>,
    /// Maximum IP packet length of an aggregate, in bytes, from 576 to 65535 [default: 65535].
    #[arg(long, value_name = "N", value_parser = number::bytes(576..=65_535_u32))]
    max_bytes: Option<u32>,
    /// Whether to coalesce UDP datagrams of one flow and equal size (gro only) [default: off; on a live card,
    /// on if the kernel accepts them, as Linux does since 6.2].
    #[arg(long, value_name = "SWITCH")]
    udp: Option<Switch>,
    /// Whether to coalesce TCP within IP (IPIP, 6in4, IP within IPv6) and PPP over Ethernet (gro only)
    /// [default: off: a host that forwards such packets cannot segment them again].
    #[arg(long, value_name = "SWITCH")]
    tunnels: Option<Switch>,
    /// Whether to coalesce segments whose CWR and AE flags are equal, as Linux 7 does for accurate ECN (gro
    /// only) [default: off: a host that forwards such packets segments them with CWR on the first only].
    #[arg(long, value_name = "SWITCH")]
    accurate_ecn: Option<Switch>,
    /// Whether PSH ends an aggregate (end) or is held like other data (npu only) [default: hold].
    #[arg(long, value_name = "RULE")]
    psh: Option<Psh>,
    /// Whether npu keeps connections alive where the paper's rules break them (safe), or follows the paper,
    /// without limits to hold times other than --hold and --reorder-hold [default: safe].
    #[arg(long, value_name = "RULES")]
    rules: Option<RuleSet>,
    /// When the card sends ACKs by itself (npu only) [default: off].
    #[arg(long, value_name = "MODE")]
    active_ack: Option<Acknowledge>,
    /// How to handle segments with a wrong checksum [default: pass for gro, drop for netfpga and npu].
    #[arg(long, value_name = "ACTION")]
    bad_checksum: Option<Action>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
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

/// Parses a profile; the error lists the profiles.
pub(crate) fn profile() -> impl TypedValueParser<Value = Profile> {
    named_values(Profile::ALL.map(Profile::name), Profile::from_str)
}

/// Returns the default configuration of a profile.
pub(crate) fn default_profile_config(profile: Profile) -> ProfileConfig {
    match profile {
        Profile::Gro => ProfileConfig::Gro(Hold::For(INTERRUPT_MODERATION)),
        Profile::Netfpga => ProfileConfig::Netfpga(NetfpgaConfig::with_timer(INTERRUPT_MODERATION)),
        Profile::Npu => ProfileConfig::Npu(NpuConfig::default()),
    }
}

/// Whether UDP datagrams are coalesced by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UdpByDefault {
    On,
    Off,
}

impl EngineOptions {
    /// Returns the configuration common to all engines, with the host's default for UDP.
    pub(crate) fn config(&self, medium: Medium, udp: UdpByDefault) -> Config {
        let bad_checksum = self.bad_checksum.map(|action| match action {
            Action::Drop => BadChecksum::Drop,
            Action::Pass => BadChecksum::Pass,
        });
        let udp = self.udp.map_or(udp == UdpByDefault::On, |udp| udp == Switch::On);
        let (tunnels, accurate_ecn) = (self.has_tunnels(), self.accurate_ecn == Some(Switch::On));
        let default = Config::default();
        let max_bytes = self.max_bytes.unwrap_or(default.max_bytes);
        Config { medium, bad_checksum, udp, tunnels, accurate_ecn, max_bytes, ..default }
    }

    /// Returns a profile's configuration: its options, otherwise the values of `default`.
    ///
    /// # Errors
    /// An option does not apply to the profile.
    pub(crate) fn profile_config(&self, default: ProfileConfig) -> anyhow::Result<ProfileConfig> {
        if default.profile() != Profile::Npu {
            self.refuse_npu_options(default.profile())?;
        }
        if default.profile() != Profile::Gro {
            self.refuse_gro_options()?;
        }
        Ok(match (default, self.hold) {
            (ProfileConfig::Gro(default), hold) => ProfileConfig::Gro(hold.map_or(default, Hold::For)),
            (ProfileConfig::Netfpga(default), hold) => {
                ProfileConfig::Netfpga(NetfpgaConfig { timer: hold.unwrap_or(default.timer), ..default })
            }
            (ProfileConfig::Npu(default), hold) => {
                let default = if self.has_paper_rules() { NpuConfig::paper() } else { default };
                let held = hold.map_or(default, |hold| NpuConfig {
                    floor: default.floor.min(hold),
                    ceiling: hold,
                    reorder_hold: hold,
                    ..default
                });
                ProfileConfig::Npu(self.npu_config(held))
            }
        })
    }

    /// Returns these options, but passes segments with a wrong checksum unless `--bad-checksum` is given.
    pub(crate) fn passing_bad_checksums(&self) -> Self {
        Self { bad_checksum: self.bad_checksum.or(Some(Action::Pass)), ..self.clone() }
    }

    /// Returns true if segments in tunnels are coalesced.
    pub(crate) fn has_tunnels(&self) -> bool {
        self.tunnels == Some(Switch::On)
    }

    /// Returns true if the card sends ACKs by itself.
    pub(crate) fn acknowledges(&self) -> bool {
        !matches!(self.active_ack, None | Some(Acknowledge::Off))
    }

    /// Returns true if the paper's rules apply, which can break connections.
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

    /// Rejects engine options without an engine.
    ///
    /// # Errors
    /// An engine option is given.
    pub(crate) fn refuse_all(&self) -> anyhow::Result<()> {
        let options = [
            ("--hold", self.hold.is_some()),
            ("--max-bytes", self.max_bytes.is_some()),
            ("--udp", self.udp.is_some()),
            ("--tunnels", self.tunnels.is_some()),
            ("--accurate-ecn", self.accurate_ecn.is_some()),
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

    fn refuse_gro_options(&self) -> anyhow::Result<()> {
        let options = [
            ("--udp on", self.udp, "UDP"),
            ("--tunnels on", self.tunnels, "TCP in tunnels"),
            ("--accurate-ecn on", self.accurate_ecn, "segments with CWR"),
        ];
        match options.iter().find(|(_, given, _)| *given == Some(Switch::On)) {
            Some((name, _, what)) => {
                Err(failure::usage(format!("{name} is for the gro profile only: no other coalesces {what}")))
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        engine: EngineOptions,
    }

    fn npu(options: &[&str]) -> NpuConfig {
        let options = Options::parse_from([&["nichrome"], options].concat());
        match options.engine.profile_config(default_profile_config(Profile::Npu)).unwrap() {
            ProfileConfig::Npu(npu) => npu,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_papers_rules_come_with_its_times_unless_others_are_given() {
        assert_eq!(npu(&[]), NpuConfig::default());
        assert_eq!(npu(&["--rules", "paper"]), NpuConfig::paper());
        let (hold, gap) = (Duration::from_millis(5), Duration::from_micros(500));
        let paper = NpuConfig::paper();
        let held = NpuConfig { ceiling: hold, reorder_hold: hold, ..paper };
        assert_eq!(npu(&["--rules", "paper", "--hold", "5ms"]), held);
        assert_eq!(
            npu(&["--rules", "paper", "--reorder-hold", "500us"]),
            NpuConfig { reorder_hold: gap, ..paper }
        );
        assert_eq!(
            npu(&["--rules", "paper", "--hold", "5ms", "--reorder-hold", "500us"]),
            NpuConfig { reorder_hold: gap, ..held }
        );
        assert_eq!(npu(&["--hold", "5ms"]), NpuConfig::with_hold(hold));
    }
}
