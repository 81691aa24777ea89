//! The diagnosis: derives from an observation why a program does not use the device.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::super::program::Linkage;
use super::observation::{Observation, Process};

/// The report.
#[derive(Debug, Default)]
pub(super) struct Diagnosis {
    /// One line per observed step, then the reason if no process opened the device.
    pub(super) lines: Vec<String>,
    /// True if a process opened the device.
    pub(super) device_opened: bool,
}

/// The name under which opening the connection manager's device file is recorded.
const OPEN_CONNECTION_MANAGER: &str = "open_rdma_cm";

/// Verbs that a program calls on its way to a connection, in this order, with their description in the
/// report.
const STEPS: [(&str, &str); 6] = [
    ("ibv_get_device_list", "listed the devices"),
    (OPEN_CONNECTION_MANAGER, "opened /dev/infiniband/rdma_cm"),
    ("ibv_open_device", "opened nichrome0"),
    ("ibv_query_port", "queried the port"),
    ("ibv_query_gid", "queried a GID"),
    ("ibv_create_qp", "created a queue pair"),
];

/// Prefixes of the connection manager's paths: its device, and its folder in `/sys`, which librdmacm reads
/// first.
const CONNECTION_MANAGER: [&str; 2] = ["/dev/infiniband/rdma_cm", "/sys/class/misc/rdma_cm"];

impl Process {
    fn called(&self, verb: &str) -> bool {
        self.verbs.contains(verb)
    }

    fn looked_for_connection_manager(&self) -> bool {
        self.paths.keys().any(|path| CONNECTION_MANAGER.iter().any(|prefix| path.starts_with(prefix)))
    }

    /// Returns true if the process used a path of nichrome0, not only of the connection manager.
    fn looked_for_device(&self) -> bool {
        let is_other = |path: &String| CONNECTION_MANAGER.iter().any(|prefix| path.starts_with(prefix));
        self.paths.keys().any(|path| !is_other(path))
    }

    /// Returns true if the process called a verb or used a path of RDMA devices.
    fn used_rdma(&self) -> bool {
        !self.verbs.is_empty() || !self.paths.is_empty()
    }

    /// Returns the loaded libraries whose names contain `part` and which are not in the folder `ours`.
    fn foreign<'a>(&'a self, part: &'a str, ours: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let has_part = move |path: &&PathBuf| {
            path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.contains(part))
        };
        self.libraries.iter().filter(has_part).filter(move |path| path.parent() != Some(ours))
    }

    fn has_ours(&self, ours: &Path) -> bool {
        self.libraries.contains(&ours.join("libibverbs.so.1"))
    }
}

/// Reports what each process did and, if none opened the device, why. `ours` is the folder of Nichrome's
/// libraries.
pub(super) fn diagnose(observation: &Observation, linkage: Linkage, ours: &Path) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    let rdma_users: Vec<_> =
        observation.processes.iter().filter(|(_, process)| process.used_rdma()).collect();
    for (pid, process) in &rdma_users {
        diagnosis.lines.extend(observed(**pid, process, ours));
        diagnosis.device_opened |= process.called("ibv_open_device");
    }
    if !diagnosis.device_opened {
        diagnosis.lines.push(format!("No device: {}", reason(observation, linkage, ours)));
    }
    diagnosis
}

/// Returns the report's lines about a process.
fn observed(pid: u32, process: &Process, ours: &Path) -> Vec<String> {
    let name = if process.program.is_empty() { "(child)" } else { &process.program };
    let mut lines = vec![format!("{name} ({pid}):")];
    for library in process.foreign("libibverbs", ours) {
        lines.push(format!("  also loaded another libibverbs: {}", library.display()));
    }
    let steps = STEPS.iter().filter(|(verb, _)| process.called(verb));
    lines.extend(steps.map(|(_, step)| format!("  {step}")));
    let paths = process.paths.iter();
    lines.extend(paths.map(|(path, functions)| {
        let functions: Vec<_> = functions.iter().map(String::as_str).collect();
        format!("  looked up {path} ({})", functions.join(", "))
    }));
    lines
}

/// Returns the reason why no process opened the device.
fn reason(observation: &Observation, linkage: Linkage, ours: &Path) -> String {
    let processes = || observation.processes.values();
    if processes().any(|process| process.called(OPEN_CONNECTION_MANAGER)) {
        return "the program opened /dev/infiniband/rdma_cm, and bound or resolved no address of this machine."
            .to_owned();
    }
    if processes().any(Process::looked_for_connection_manager) {
        return "librdmacm does not reach Nichrome's /dev/infiniband/rdma_cm: it is linked statically, or calls another \
                libibverbs. Use the mode of the program that exchanges addresses over TCP (perftest and qperf: without -R \
                and -cm1)."
            .to_owned();
    }
    if processes().any(|process| process.called("ibv_get_device_list")) {
        return "the program listed nichrome0 and did not open it. It selects devices by name or prefers another \
                transport: look for an option or a variable of the program (UCX_NET_DEVICES, UCX_TLS, NCCL_IB_HCA, ...)."
            .to_owned();
    }
    if !processes().any(|process| process.has_ours(ours)) {
        return "no process loaded the preloaded libibverbs.so.1: the program clears LD_PRELOAD, or is set-user-ID."
            .to_owned();
    }
    if let Some(other) = processes().find_map(|process| process.foreign("libibverbs", ours).next()) {
        return format!(
            "the program also loaded {} and calls it instead of Nichrome's: it opens this library with RTLD_DEEPBIND or by \
             its path. Replace the file by a link to Nichrome's.",
            other.display()
        );
    }
    if processes().any(Process::looked_for_device) {
        return "the program looked for the device in /sys and /dev, but called no verb of Nichrome's libibverbs.so.1: it \
                only reads these files, has a libibverbs linked in statically, or calls the kernel directly."
            .to_owned();
    }
    if linkage.needs_libibverbs {
        return "the program is linked with libibverbs and called no verb: it ended too early, or an option must turn RDMA \
                on."
            .to_owned();
    }
    "the program is not linked with libibverbs, called no verb and looked for no device: it was built without RDMA, its \
     plug-in for RDMA is not installed, or an option must turn it on."
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/ours";

    fn process(libraries: &[&str], verbs: &[&str], paths: &[&str]) -> Observation {
        let process = Process {
            program: "program".to_owned(),
            libraries: libraries.iter().map(PathBuf::from).collect(),
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
            paths: paths.iter().map(|&path| (path.to_owned(), ["open".to_owned()].into())).collect(),
        };
        Observation { processes: [(7, process)].into() }
    }

    fn text(observation: &Observation, linkage: Linkage) -> String {
        let diagnosis = diagnose(observation, linkage, Path::new(OURS));
        assert_eq!(
            diagnosis.device_opened,
            !diagnosis.lines.iter().any(|line| line.starts_with("No device"))
        );
        diagnosis.lines.join("\n")
    }

    #[test]
    fn each_cause_has_its_reason() {
        let linked = Linkage { needs_libibverbs: true, ..Linkage::default() };
        let ours = "/ours/libibverbs.so.1";
        let bundled = "/wheel/libibverbs-0a1b.so.1.14";
        for (libraries, verbs, paths, linkage, expected) in [
            (&[ours][..], &["ibv_get_device_list"][..], &[][..], linked, "did not open it"),
            (&[], &[], &[], linked, "clears LD_PRELOAD"),
            (&[ours, bundled], &[], &[], linked, bundled),
            (&[ours], &[], &["/sys/class/infiniband"], Linkage::default(), "linked in statically"),
            (&[ours], &["ibv_get_device_list"], &["/dev/infiniband/rdma_cm"], linked, "linked statically"),
            (
                &[ours],
                &["ibv_get_device_list", "open_rdma_cm"],
                &["/sys/class/misc/rdma_cm/abi_version"],
                linked,
                "no address of this machine",
            ),
            (&[ours], &[], &[], linked, "linked with libibverbs and called no verb"),
            (&[ours], &[], &[], Linkage::default(), "not linked with libibverbs"),
        ] {
            let report = text(&process(libraries, verbs, paths), linkage);
            assert!(report.contains(expected), "{expected} in {report}");
            assert!(!report.contains("--transport"), "each transport has a connection manager: {report}");
        }
    }

    #[test]
    fn the_report_on_a_program_that_opens_the_device_gives_no_reason() {
        let verbs = ["ibv_get_device_list", "ibv_open_device", "ibv_create_qp"];
        let report = text(&process(&["/ours/libibverbs.so.1"], &verbs, &[]), Linkage::default());
        assert_eq!(report, "program (7):\n  listed the devices\n  opened nichrome0\n  created a queue pair");
    }
}
