//! Errors are one line, with the remedy.

use std::fs;

use crate::lab::{Lab, failure, needs_namespaces};

fn up<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["nic", "up", "--wire", "w0", "--host", "h0"], arguments].concat()
}

#[test]
fn missing_wires_and_used_host_names_are_refused() {
    needs_namespaces!("refusals::missing_wires_and_used_host_names_are_refused");
    let lab = Lab::new();
    let refused = |wire, host, words: &str| {
        let (line, status) = lab.failure(&["nic", "up", "--wire", wire, "--host", host]);
        assert!(line.contains(words), "{line}");
        assert!(lab.is_tidy());
        status
    };
    assert_eq!(refused("w9", "h0", "there is no interface called w9"), 1);
    assert_eq!(refused("lo", "h0", "lo is not an Ethernet interface"), 1);
    assert_eq!(refused("w0", "lo", "there is an interface called lo already"), 1);
    assert_eq!(refused("w0", "w0", "both are w0"), 2);
    lab.ip("link set w0 down");
    assert_eq!(refused("w0", "h0", "w0 is down: 'ip link set w0 up' sets it up"), 1);
}

#[test]
fn a_wire_has_one_card() {
    needs_namespaces!("refusals::a_wire_has_one_card");
    let lab = Lab::new();
    let first = lab.up(&[]);
    let (line, status) = lab.failure(&["nic", "up", "--wire", "w0", "--host", "h1"]);
    assert_eq!(status, 1);
    assert!(line.contains("w0 is in use by process"), "{line}");
    assert!(line.contains("'nichrome nic down h0'"), "{line}");
    lab.run(&["nic", "stats"]);
    first.stop();
    lab.up(&[]).stop();
}

#[test]
fn a_wire_has_one_card_of_all_users() {
    needs_namespaces!("refusals::a_wire_has_one_card_of_all_users");
    let lab = Lab::new();
    let before = lab.interface("w0");
    let first = lab.up(&["--backend", "packet"]);
    // Hides the claim: another user's claim is in another directory.
    let (claim, hidden) = (lab.claim_path(), lab.claim_path().with_extension("hidden"));
    fs::rename(&claim, &hidden).unwrap();
    let during = lab.interface("w0");
    let (line, status) = lab.failure(&["nic", "up", "--backend", "packet", "--wire", "w0", "--host", "h1"]);
    assert_eq!(status, 1);
    assert!(line.contains("w0 is in use by the card behind h0, of another user"), "{line}");
    assert_eq!((lab.interface("w0").mac, claim.exists()), (during.mac, false));
    fs::rename(&hidden, &claim).unwrap();
    first.stop();
    assert_eq!(lab.interface("w0").mac, before.mac);
}

#[test]
fn a_wire_with_several_names_has_one_card() {
    needs_namespaces!("refusals::a_wire_with_several_names_has_one_card");
    let lab = Lab::new();
    lab.ip("link property add dev w0 altname wire0");
    let before = lab.interface("w0");
    let first = lab.start(&mut lab.command(
        env!("CARGO_BIN_EXE_nichrome"),
        &["nic", "up", "--backend", "packet", "--wire", "wire0", "--host", "h0"],
    ));
    assert_eq!(lab.stats()["wire"], "w0");
    let (line, status) = lab.failure(&["nic", "up", "--backend", "packet", "--wire", "w0", "--host", "h1"]);
    assert!(line.contains("w0 is in use by process"), "{line}");
    assert_eq!(status, 1);
    first.stop();
    assert_eq!(lab.interface("w0").mac, before.mac);
}

#[test]
fn lossy_profiles_are_refused_on_forwarding_hosts() {
    needs_namespaces!("refusals::lossy_profiles_are_refused_on_forwarding_hosts");
    for setting in ["ipv4/conf/default/forwarding", "ipv6/conf/default/forwarding"] {
        let lab = Lab::new();
        lab.here.run(|| fs::write(format!("/proc/sys/net/{setting}"), "1").unwrap()).unwrap();
        for profile in ["npu", "netfpga"] {
            let (line, status) = lab.failure(&up(&["--profile", profile]));
            assert_eq!(status, 1);
            let expected = ["forwarding is enabled on h0", profile, "--profile gro", "--force"];
            assert!(expected.iter().all(|words| line.contains(words)), "{line}");
            assert!(lab.is_tidy());
        }
        lab.up(&["--profile", "gro"]).stop();
        lab.up(&["--profile", "npu", "--force"]).stop();
    }
}

#[test]
fn forwarding_turned_on_later_causes_one_warning() {
    needs_namespaces!("refusals::forwarding_turned_on_later_causes_one_warning");
    let lab = Lab::new();
    let mut up = lab.up(&["--profile", "npu"]);
    lab.here.run(|| fs::write("/proc/sys/net/ipv4/conf/h0/forwarding", "1").unwrap()).unwrap();
    lab.ip("link set lo mtu 9000");
    up.wait_for("forwarding is enabled on h0");
    lab.ip("link set lo mtu 9001");
    let logged = up.stop();
    assert_eq!(logged.iter().filter(|line| line.contains("forwarding")).count(), 1, "{logged:?}");
}

#[test]
fn a_host_that_becomes_a_port_of_a_bridge_causes_one_warning() {
    needs_namespaces!("refusals::a_host_that_becomes_a_port_of_a_bridge_causes_one_warning");
    for (profile, warnings) in [("npu", 1), ("gro", 0)] {
        let lab = Lab::new();
        lab.ip("link add br0 type bridge");
        let mut up = lab.up(&["--profile", profile]);
        lab.ip("link set h0 master br0");
        if warnings > 0 {
            up.wait_for(
                "h0 is a port of a bridge, which forwards, and the original packets of npu's aggregates",
            );
        }
        lab.ip("link set h0 nomaster");
        lab.ip("link set h0 master br0");
        let logged = up.stop();
        let found = logged.iter().filter(|line| line.contains("a port of a bridge")).count();
        assert_eq!(found, warnings, "{logged:?}");
    }
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    needs_namespaces!("refusals::options_that_do_not_go_together_are_refused");
    let lab = Lab::new();
    let cases: [(&[&str], &str); 7] = [
        (&["--profile", "none", "--hold", "1ms"], "--profile none has none"),
        (&["--profile", "none", "--max-bytes", "9000"], "--max-bytes is for an engine"),
        (&["--profile", "gro", "--active-ack", "safe"], "for the npu profile only"),
        (&["--profile", "lro"], "use gro, netfpga or npu, or none at all"),
        (&["--queues", "4", "--host-queues", "3"], "it must be 1, or as many as there are workers"),
        (
            &["--profile", "npu", "--active-ack", "safe", "--queues", "2", "--host-queues", "1"],
            "--active-ack needs --host-queues 2",
        ),
        (&["--queues", "0"], "expected a whole number from 1 to 256"),
    ];
    for (arguments, words) in cases {
        let (line, status) = lab.failure(&up(arguments));
        assert!(line.contains(words), "{line}");
        assert_eq!(status, 2, "{line}");
    }
    assert!(lab.is_tidy());
}

#[test]
fn capabilities_that_are_missing_are_named() {
    needs_namespaces!("refusals::capabilities_that_are_missing_are_named");
    let lab = Lab::new();
    let without = ["--bounding-set", "-all", "--inh-caps", "-all", env!("CARGO_BIN_EXE_nichrome")];
    let mut command = lab.command("setpriv", &[&without[..], &up(&[])].concat());
    let output = lab.here.run(|| command.output().expect("this test needs setpriv (util-linux)")).unwrap();
    let (line, status) = failure(&output);
    assert_eq!(status, 1);
    assert!(line.contains("CAP_NET_ADMIN and CAP_NET_RAW: run this with sudo"), "{line}");
}

#[test]
fn captures_must_be_writable_from_the_start() {
    needs_namespaces!("refusals::captures_must_be_writable_from_the_start");
    let lab = Lab::new();
    let before = lab.interface("w0");
    let (line, status) = lab.failure(&up(&["--capture-wire", "/nowhere/wire.pcapng"]));
    assert_eq!(status, 1);
    assert!(line.contains("--capture-wire") && line.contains("/nowhere/wire.pcapng"), "{line}");
    assert_eq!(lab.interface("w0").mac, before.mac);
    assert!(lab.is_tidy());
}

#[test]
fn addresses_on_the_wire_cause_a_warning() {
    needs_namespaces!("refusals::addresses_on_the_wire_cause_a_warning");
    let lab = Lab::new();
    lab.ip("address add 10.9.0.1/24 dev w0");
    lab.ip("address add fd09::1/64 dev w0 nodad");
    let warning = |logged: Vec<String>| logged.into_iter().find(|line| line.contains("addresses of its own"));
    let line = warning(lab.up(&[]).stop()).expect("a warning");
    assert!(line.contains("w0 has addresses of its own (10.9.0.1, fd09::1)"), "{line}");
    assert!(line.contains("assign them to h0"), "{line}");
    lab.ip("address flush dev w0");
    assert_eq!(warning(lab.up(&[]).stop()), None);
}

#[test]
fn a_wire_in_a_bridge_causes_a_warning() {
    needs_namespaces!("refusals::a_wire_in_a_bridge_causes_a_warning");
    let lab = Lab::new();
    lab.ip("link add br0 type bridge");
    lab.ip("link set w0 master br0");
    let warning = |logged: Vec<String>| logged.into_iter().find(|line| line.contains("is a port of"));
    let line = warning(lab.up(&[]).stop()).expect("a warning");
    assert!(line.contains("'ip link set w0 nomaster' removes it"), "{line}");
    lab.ip("link set w0 nomaster");
    assert_eq!(warning(lab.up(&[]).stop()), None);
}

#[test]
fn wrong_values_in_a_file_are_refused() {
    needs_namespaces!("refusals::wrong_values_in_a_file_are_refused");
    let lab = Lab::new();
    let file = lab.file("card.toml");
    for (line, expected) in [
        ("capture = 5", "capture must be the name of a file, such as \"capture.pcapng\""),
        ("capture-host = 1.5", "capture-host must be the name of a file, such as \"capture-host.pcapng\""),
        ("hold = \"-1us\"", "invalid value '-1us' for '--hold <DURATION>': a time is a number with"),
    ] {
        fs::write(&file, format!("wire = \"w0\"\nhost = \"h0\"\n{line}\n")).unwrap();
        let (error, _) = lab.failure(&["nic", "up", "--config", &file]);
        assert!(error.contains(expected), "{error}");
    }
}
