//! The report: checks, commands, remedies. `--json` prints it: names are stable.

use std::fmt;

use comfy_table::{ContentArrangement, Table, TableComponent, presets};
use serde::Serialize;

use super::check::{Check, Outcome, Subject};
use super::command::Command;
use super::machine::Machine;

/// The results of all checks and commands.
#[derive(Serialize)]
pub(super) struct Report {
    version: &'static str,
    pub(super) checks: Vec<Check>,
    pub(super) commands: Vec<Command>,
}

impl Report {
    /// Checks a machine.
    pub(super) fn new(machine: &impl Machine) -> Self {
        let checks: Vec<_> = Subject::ALL.into_iter().map(|subject| Check::of(subject, machine)).collect();
        let commands = Command::all(&checks);
        Self { version: env!("CARGO_PKG_VERSION"), checks, commands }
    }

    /// Returns true if the machine refuses no command that needs no root. A missing iperf3 only makes
    /// `bench wan` fail.
    pub(super) fn works_without_root(&self) -> bool {
        !self.commands.iter().any(|command| {
            command.without_root
                && command.outcome == Outcome::Refused
                && command.because != [Subject::Iperf3]
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut checks = table(["this machine", "", ""]);
        for Check { subject, outcome, found, .. } in &self.checks {
            checks.add_row([subject.name(), word(*outcome), found]);
        }
        let mut commands = table(["nichrome", "", "because of"]);
        for Command { command, outcome, because, .. } in &self.commands {
            let because: Vec<_> = because.iter().map(|subject| subject.name()).collect();
            commands.add_row([(*command).to_owned(), word(*outcome).to_owned(), because.join(", ")]);
        }
        writeln!(f, "{}\n\n{}", checks.trim_fmt(), commands.trim_fmt())?;
        let remedies = self.checks.iter().filter_map(|check| Some((check.subject, check.remedy.as_ref()?)));
        for (place, (subject, remedy)) in remedies.enumerate() {
            let before = if place == 0 { "\n" } else { "" };
            writeln!(f, "{before}{}: {remedy}", subject.name())?;
        }
        Ok(())
    }
}

const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Works => "works",
        Outcome::Limited => "limited",
        Outcome::Refused => "refused",
    }
}

fn table(header: [&str; 3]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table
}

#[cfg(test)]
mod tests {
    use nichrome_port::XdpConfig;
    use std::collections::{HashMap, HashSet};

    use super::super::machine::{DISABLE_IPV6, Refusal, Trial};
    use super::*;

    /// A machine on which everything is allowed except what a test forbids.
    #[derive(Default)]
    struct Faked {
        files: HashMap<&'static str, &'static str>,
        refused: HashSet<Trial>,
        devices: Vec<String>,
        open_files: Option<u64>,
        locked_memory: Option<u64>,
        without_libraries: bool,
    }

    impl Machine for Faked {
        fn read(&self, path: &str) -> Option<String> {
            let usual = HashMap::from([
                ("/proc/misc", "200 tun"),
                (DISABLE_IPV6, "0"),
                ("/proc/sys/net/core/rmem_max", "212992"),
            ]);
            self.files.get(path).or_else(|| usual.get(path)).map(|text| (*text).to_owned())
        }

        fn entries(&self, folder: &str) -> Vec<String> {
            assert_eq!(folder, "/sys/class/infiniband");
            self.devices.clone()
        }

        fn attempt(&self, trial: Trial) -> Result<(), Refusal> {
            let refusal = || Refusal { error: format!("{trial:?} refused"), remedy: None };
            if self.refused.contains(&trial) { Err(refusal()) } else { Ok(()) }
        }

        fn open_files(&self) -> Option<u64> {
            self.open_files
        }

        fn locked_memory(&self) -> Option<u64> {
            self.locked_memory
        }

        fn libraries(&self) -> Result<String, Refusal> {
            let missing = || Refusal { error: "there is no library".into(), remedy: None };
            if self.without_libraries { Err(missing()) } else { Ok("/usr/lib/nichrome".into()) }
        }
    }

    fn outcome(report: &Report, command: &str) -> (Outcome, Vec<Subject>) {
        let found = report.commands.iter().find(|of| of.command == command).unwrap();
        (found.outcome, found.because.clone())
    }

    fn check(report: &Report, subject: Subject) -> &Check {
        report.checks.iter().find(|check| check.subject == subject).unwrap()
    }

    #[test]
    fn everything_works_where_all_is_allowed() {
        let report = Report::new(&Faked::default());
        assert!(report.commands.iter().all(|command| command.outcome == Outcome::Works));
        assert!(report.checks.iter().all(|check| check.remedy.is_none()));
        assert!(report.works_without_root());
    }

    #[test]
    fn wan_and_demo_are_refused_without_user_namespaces() {
        let refused = HashSet::from([Trial::Namespaces, Trial::Tap, Trial::ProcessNamespace]);
        let report = Report::new(&Faked { refused, ..Faked::default() });
        for command in ["wan", "demo"] {
            assert_eq!(outcome(&report, command), (Outcome::Refused, vec![Subject::UserNamespaces]));
        }
        assert_eq!(outcome(&report, "rdma run").0, Outcome::Works);
        assert!(!report.works_without_root());
    }

    #[test]
    fn a_kernel_without_tap_refuses_wan_whether_or_not_it_has_namespaces() {
        for refused in [HashSet::from([Trial::Tap]), HashSet::from([Trial::Tap, Trial::Namespaces])] {
            let files = HashMap::from([("/proc/misc", "130 watchdog")]);
            let report = Report::new(&Faked { files, refused, ..Faked::default() });
            assert!(outcome(&report, "wan").1.contains(&Subject::Tap));
            assert!(check(&report, Subject::Tap).remedy.as_ref().unwrap().contains("--device /dev/net/tun"));
        }
    }

    #[test]
    fn features_for_root_are_refused_to_others_without_a_failure() {
        let refused = HashSet::from([Trial::RawSocket, Trial::NetworkAdministration, Trial::Xdp]);
        let report = Report::new(&Faked { refused, ..Faked::default() });
        let both = vec![Subject::RawSockets, Subject::NetworkAdministration];
        assert_eq!(outcome(&report, "wan --between"), (Outcome::Refused, both.clone()));
        assert_eq!(outcome(&report, "nic up"), (Outcome::Refused, both));
        assert_eq!(outcome(&report, "rdma run --packets"), (Outcome::Refused, vec![Subject::RawSockets]));
        assert!(report.works_without_root());
    }

    #[test]
    fn small_socket_buffers_limit_rdma_unless_they_can_be_forced() {
        let refused = HashSet::from([Trial::NetworkAdministration]);
        let report = Report::new(&Faked { refused: refused.clone(), ..Faked::default() });
        assert_eq!(outcome(&report, "rdma run"), (Outcome::Limited, vec![Subject::SocketBuffers]));
        let remedy = check(&report, Subject::SocketBuffers).remedy.as_deref();
        assert_eq!(remedy, Some("'sudo sysctl net.core.rmem_max=8388608'"));
        let files = HashMap::from([("/proc/sys/net/core/rmem_max", "8388608")]);
        let report = Report::new(&Faked { files, refused, ..Faked::default() });
        assert_eq!(outcome(&report, "rdma run").0, Outcome::Works);
    }

    #[test]
    fn process_limits_restrict_commands_that_open_files_or_lock_memory() {
        let report =
            Report::new(&Faked { open_files: Some(256), locked_memory: Some(8 << 20), ..Faked::default() });
        assert_eq!(outcome(&report, "nic up"), (Outcome::Limited, vec![Subject::LockedMemory]));
        assert_eq!(outcome(&report, "rdma run"), (Outcome::Limited, vec![Subject::OpenFiles]));
        // The memory that `nic up` locks for a queue of AF_XDP, and one byte less.
        let locked = XdpConfig::default().locked_bytes();
        for (limit, expected) in [(locked, Outcome::Works), (locked - 1, Outcome::Limited)] {
            let report = Report::new(&Faked { locked_memory: Some(limit), ..Faked::default() });
            assert_eq!(outcome(&report, "nic up").0, expected);
        }
    }

    #[test]
    fn without_real_time_priority_cards_and_paths_are_limited() {
        let report = Report::new(&Faked { refused: HashSet::from([Trial::RealTime]), ..Faked::default() });
        for command in ["demo", "wan", "wan --between", "nic up", "bench wan", "bench overip"] {
            assert_eq!(outcome(&report, command), (Outcome::Limited, vec![Subject::RealTimePriority]));
        }
        assert_eq!(outcome(&report, "rdma run").0, Outcome::Works);
        assert!(report.works_without_root());
        let remedy = check(&report, Subject::RealTimePriority).remedy.as_deref();
        assert!(remedy.is_some_and(|remedy| remedy.starts_with("'ulimit -r 1'")));
    }

    #[test]
    fn libraries_that_are_missing_refuse_rdma_run_only() {
        let report = Report::new(&Faked { without_libraries: true, ..Faked::default() });
        assert_eq!(outcome(&report, "rdma run"), (Outcome::Refused, vec![Subject::RdmaLibraries]));
        assert!(report.to_string().contains("scripts/build-libibverbs in a clone"), "{report}");
        assert_eq!(outcome(&report, "rdma bw, rdma lat, rdma pingpong").0, Outcome::Works);
    }

    #[test]
    fn real_devices_are_named() {
        let report = Report::new(&Faked { devices: vec!["mlx5_0".into()], ..Faked::default() });
        assert!(check(&report, Subject::RdmaHardware).found.starts_with("mlx5_0: "));
    }

    #[test]
    fn new_hosts_without_ipv6_limit_wan_but_not_demo() {
        let refused = HashSet::from([Trial::Ipv6]);
        let report = Report::new(&Faked { refused, ..Faked::default() });
        assert_eq!(outcome(&report, "wan"), (Outcome::Limited, vec![Subject::Ipv6]));
        // The demonstration uses IPv4.
        assert_eq!(outcome(&report, "demo").0, Outcome::Works);
        let text = report.to_string();
        assert!(text.contains("IPv6: 'sudo sysctl net.ipv6.conf.default.disable_ipv6=0'"), "{text}");
    }

    /// New namespaces have the built-in value, unless net.core.devconf_inherit_init_net is 1 or 3.
    #[test]
    fn what_this_network_has_by_default_does_not_limit_new_hosts() {
        let files = HashMap::from([(DISABLE_IPV6, "1")]);
        let report = Report::new(&Faked { files: files.clone(), ..Faked::default() });
        assert_eq!(outcome(&report, "wan").0, Outcome::Works);
        let refused = HashSet::from([Trial::Namespaces, Trial::Ipv6]);
        let report = Report::new(&Faked { files, refused, ..Faked::default() });
        assert_eq!(check(&report, Subject::Ipv6).outcome, Outcome::Works);
    }

    #[test]
    fn without_iperf3_the_benchmark_of_the_path_is_refused_and_that_of_rdma_limited() {
        let report = Report::new(&Faked { refused: HashSet::from([Trial::Iperf3]), ..Faked::default() });
        assert_eq!(outcome(&report, "bench wan"), (Outcome::Refused, vec![Subject::Iperf3]));
        assert_eq!(outcome(&report, "bench rdma"), (Outcome::Limited, vec![Subject::Iperf3]));
        assert_eq!(outcome(&report, "bench overip").0, Outcome::Works);
        // The machine allows all commands.
        assert!(report.works_without_root());
    }
}
