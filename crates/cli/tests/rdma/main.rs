//! `nichrome rdma`: two processes, on one machine and on two hosts.
#![allow(clippy::unwrap_used, clippy::panic)]

mod other_clients;

use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

const NICHROME: &str = env!("CARGO_BIN_EXE_nichrome");

fn start(arguments: &str) -> Child {
    Command::new(NICHROME)
        .arg("rdma")
        .args(arguments.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the JSON of client and server, which connect on `port`. Only the client gets the options.
fn both(command: &str, port: u16, client: &str) -> [Value; 2] {
    let server = start(&format!("{command} --json --port {port}"));
    let client = start(&format!("{command} --json --port {port} {client} 127.0.0.1"));
    [client, server].map(|child| json(&child.wait_with_output().unwrap()))
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn bandwidth_of_every_operation_is_measured() {
    for (nth, op) in ["write", "read", "send"].into_iter().enumerate() {
        let port = 28_500 + nth as u16;
        let [client, server] = both("bw", port, &format!("--op {op} --size 10000 --depth 8 --duration 50ms"));
        assert_eq!((client["op"].as_str(), server["op"].as_str()), (Some(op), Some(op)));
        let messages = number(&client, "messages");
        assert!(messages >= 8.0 && number(&client, "gbps") > 0.0, "{client}");
        assert!(number(&client, "packets_sent") > 0.0, "{client}");
        // The server's program takes no part in WRITEs and READs.
        let received = (op == "send").then_some(messages);
        assert_eq!((server["messages"].as_f64(), server["gbps"].is_null()), (received, op != "send"));
    }
}

#[test]
fn a_low_throughput_is_not_zero() {
    let server = start("bw --port 22030");
    let client = start("bw --port 22030 --op send --size 1 --depth 1 --duration 50ms 127.0.0.1");
    for end in [client, server] {
        let output = end.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(" Gb/s") && !text.contains("0.00 Gb/s"), "{text}");
    }
}

#[test]
fn a_server_on_any_port_tells_which_one_it_is() {
    for options in ["", "--json"] {
        let mut server = start(&format!("pingpong --port 0 {options}"));
        let mut line = String::new();
        BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim_end().strip_prefix("nichrome: waiting for a client on TCP port ").unwrap();
        let client = start(&format!("pingpong --port {port} 127.0.0.1")).wait_with_output().unwrap();
        assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
        assert!(server.wait().unwrap().success());
    }
}

#[test]
fn a_standard_error_without_a_reader_is_no_failure() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut server = Command::new(NICHROME);
    let server =
        server.args(["rdma", "pingpong", "--port", "22041"]).stdout(Stdio::null()).stderr(writer).spawn();
    let client = start("pingpong --port 22041 127.0.0.1").wait_with_output().unwrap();
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    assert!(server.unwrap().wait().unwrap().success());
}

#[test]
fn bandwidth_uses_all_connections_and_reports_their_memory() {
    for (nth, (qps, depth)) in [(3, 8), (1500, 16)].into_iter().enumerate() {
        for (op_nth, op) in ["write", "send"].into_iter().enumerate() {
            let port = 28_530 + 2 * nth as u16 + op_nth as u16;
            let options = format!("--op {op} --size 5000 --qps {qps} --depth {depth} --duration 50ms");
            let [client, server] = both("bw", port, &options);
            assert_eq!((number(&client, "qps"), number(&server, "qps")), (f64::from(qps), f64::from(qps)));
            assert!(number(&client, "messages") >= f64::from(depth), "{client}");
            assert_eq!(client["bytes_per_qp"].is_u64(), qps >= 1000, "{client}");
        }
    }
}

#[test]
fn latency_of_every_operation_has_a_histogram_of_all_messages() {
    for (nth, op) in ["write", "read", "send"].into_iter().enumerate() {
        let port = 28_510 + nth as u16;
        let [client, server] = both("lat", port, &format!("--op {op} --size 1000 --iters 200"));
        assert_eq!(server["p50_us"].is_null(), op == "read", "{server}");
        let counts = client["histogram"].as_array().unwrap().iter().map(|bar| bar[1].as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), 200, "{client}");
        assert!(number(&client, "min_us") <= number(&client, "p50_us"));
        assert!(number(&client, "p50_us") <= number(&client, "max_us"));
    }
}

#[test]
fn a_ping_pong_goes_on_through_loss() {
    let [client, server] = both("pingpong", 28_520, "--loss 5% --seed 3");
    for end in [&client, &server] {
        assert_eq!((number(end, "iters"), number(end, "size")), (1000.0, 4096.0));
    }
    assert!(number(&client, "lost_to_faults") > 0.0, "{client}");
}

#[test]
fn two_hosts_with_a_path_between_them_speak_rdma() {
    let rdma = |rest: &str| format!("{NICHROME} rdma pingpong --iters 50 --json {rest}");
    let output = Command::new(NICHROME)
        .args(["wan", "--loss", "2%", "--delay", "1ms", "--seed", "5"])
        .args(["--left", &rdma("")])
        .args(["--right", &rdma("$PEER")])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(printed.matches("\"iters\": 50").count(), 2, "{printed}");
}

#[test]
fn rdma_is_measured_beside_tcp() {
    let bench = |path: Option<&str>| {
        let mut command = Command::new(NICHROME);
        command.args(["bench", "rdma", "--quick", "--json"]);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        command.output().unwrap()
    };
    // Without iperf3, everything else is measured.
    let without = bench(Some("/nonexistent"));
    let report = json(&without);
    let names = [
        "write_bw_gbps",
        "write_lat_us",
        "tcp_lat_us",
        "tcp_lat_polling_us",
        "messages_per_s",
        "bytes_per_qp",
    ];
    for name in names {
        assert!(number(&report, name) > 0.0, "{name}: {report}");
    }
    assert!(report["tcp_gbps"].is_null());
    let message = String::from_utf8_lossy(&without.stderr);
    assert!(
        message.starts_with("nichrome: TCP throughput is not measured: cannot run iperf3 (install"),
        "{message}"
    );
    let qps = report["qps"].as_array().unwrap();
    assert_eq!(qps.iter().map(|entry| number(entry, "qps")).collect::<Vec<_>>(), [1.0, 1000.0]);
    assert!(qps.iter().all(|entry| number(entry, "gbps") > 0.0), "{report}");
    if Command::new("iperf3").arg("--version").output().is_ok() {
        assert!(number(&json(&bench(None)), "tcp_gbps") > 0.0);
    }
}

#[test]
fn iwarp_is_measured_beside_roce_star_and_tcp() {
    let mut command = Command::new(NICHROME);
    command.args(["bench", "rdma", "--transport", "iwarp", "--quick", "--json"]);
    let report = json(&command.env("PATH", "/nonexistent").output().unwrap());
    assert!(report["tcp_gbps"].is_null() && number(&report, "tcp_lat_polling_us") > 0.0, "{report}");
    let transports = report["transports"].as_array().unwrap();
    let names: Vec<_> = transports.iter().filter_map(|entry| entry["transport"].as_str()).collect();
    assert_eq!(names, ["iwarp-crc", "iwarp", "roce", "star"]);
    for entry in transports {
        for name in ["write_bw_gbps", "write_lat_us", "messages_per_s", "bytes_per_qp"] {
            assert!(number(entry, name) > 0.0, "{name}: {entry}");
        }
        let qps = entry["qps"].as_array().unwrap();
        assert_eq!(qps.iter().map(|point| number(point, "qps")).collect::<Vec<_>>(), [1.0, 1000.0]);
        let is_measured = |point| number(point, "gbps") > 0.0 && number(point, "messages_per_s") > 0.0;
        assert!(qps.iter().all(is_measured), "{entry}");
    }
}

#[test]
fn connections_by_address_and_port_are_measured() {
    for (nth, transport) in ["roce", "star", "iwarp"].into_iter().enumerate() {
        let command = format!("connect --transport {transport}");
        let port = 28_550 + 2 * nth as u16;
        let [client, server] = both(&command, port, "--connections 40 --parallel 4");
        assert_eq!((number(&client, "connections"), number(&server, "connections")), (40.0, 40.0));
        assert!(number(&client, "connections_per_s") > 0.0, "{client}");
        assert!(number(&client, "connect_p50_us") <= number(&client, "first_message_p50_us"), "{client}");
        assert!(client["bytes_per_qp"].is_null() && server["connections_per_s"].is_null(), "{server}");
        let kept = both(&command, port + 1, "--connections 1000 --parallel 4 --keep");
        // A connection allocates at least its queue pair and its identifier.
        assert!(kept.iter().all(|end| number(end, "heap_bytes_per_qp") > 400.0), "{kept:?}");
    }
}

#[test]
fn connections_are_measured_beside_tcp() {
    let output = Command::new(NICHROME).args(["bench", "rdma", "--connect", "--quick", "--json"]).output();
    let report = json(&output.unwrap());
    let transports = report["transports"].as_array().unwrap();
    let names: Vec<_> = transports.iter().filter_map(|entry| entry["transport"].as_str()).collect();
    assert_eq!(names, ["roce", "star", "iwarp", "tcp"]);
    for entry in transports {
        let [connect, message] = ["connect_us", "first_message_us"].map(|name| number(entry, name));
        assert!(0.0 < connect && connect <= message && number(entry, "connections_per_s") > 0.0, "{entry}");
        assert_eq!(entry["standing"].is_null(), entry["transport"] == "tcp", "{entry}");
        if let Some(standing) = entry["standing"].as_object() {
            assert!(standing.values().all(|value| value.as_f64().unwrap() > 0.0), "{entry}");
        }
    }
}

#[test]
fn results_over_iwarp_count_segments_instead_of_packets() {
    let [client, server] = both("bw --transport iwarp", 28_540, "--duration 50ms");
    let segments = number(&client, "segments_sent");
    assert!(segments >= number(&client, "messages") && number(&client, "socket_writes") <= segments);
    assert!(number(&server, "segments_received") > 0.0, "{server}");
    assert!(client["path_mtu"].is_null() && client["wrong_icrc"].is_null(), "{client}");
    let server = start("pingpong --transport iwarp --port 28541");
    let client = start("pingpong --transport iwarp --port 28541 127.0.0.1");
    for end in [server, client] {
        let text = String::from_utf8(end.wait_with_output().unwrap().stdout).unwrap();
        assert!(text.contains("segments") && !text.contains("MTU") && !text.contains("ICRC"), "{text}");
    }
}

#[test]
fn the_cause_that_ended_an_iwarp_stream_is_named() {
    let common = "lat --transport iwarp --crc --port 28542";
    let ends = [start(common), start(&format!("{common} --size 4096 --corrupt 20% --seed 1 127.0.0.1"))];
    let errors = ends.map(|end| String::from_utf8(end.wait_with_output().unwrap().stderr).unwrap());
    let [crc, terminate] = [
        ": a segment of the peer had a wrong CRC\n",
        ": the peer ended the stream with a TERMINATE message\n",
    ];
    // The end that detects the wrong CRC sends a TERMINATE to the other end, which may detect one itself.
    assert!(errors.iter().any(|error| error.ends_with(crc)), "{errors:?}");
    assert!(errors.iter().all(|error| error.ends_with(crc) || error.ends_with(terminate)), "{errors:?}");
}

#[test]
fn a_capture_on_standard_output_has_the_packets_only() {
    let server = start("pingpong --port 28549");
    let client = start("pingpong --port 28549 --json --capture - 127.0.0.1").wait_with_output().unwrap();
    assert!(server.wait_with_output().unwrap().status.success());
    let result: Value = serde_json::from_slice(&client.stderr).unwrap();
    let (mut blocks, mut rest) = (0, &*client.stdout);
    while !rest.is_empty() {
        // pcapng: each block has its type and its length in front.
        let len = u32::from_le_bytes(rest[4..8].try_into().unwrap());
        rest = &rest[len as usize..];
        blocks += 1;
    }
    assert!(f64::from(blocks) > 2.0 * number(&result, "iters"), "{blocks} {result}");
}

#[test]
fn the_cause_that_ended_an_iwarp_set_up_is_named() {
    let common = "bw --transport iwarp --crc --port 22020";
    let errors = failures(common, &format!("{common} --qps 20 --corrupt 100% --seed 1 127.0.0.1"));
    let causes =
        ["a segment of the peer had a wrong CRC\n", "the peer ended the stream with a TERMINATE message\n"];
    assert!(errors.iter().all(|error| causes.iter().any(|cause| error.ends_with(cause))), "{errors:?}");
}

#[test]
fn the_device_has_the_address_of_the_ipv6_loopback_by_which_a_client_connects() {
    let server = start("bw --ip ::1 --port 22031 --json");
    let client = json(&start("bw --duration 50ms --port 22031 --json ::1").wait_with_output().unwrap());
    assert!(number(&client, "messages") > 0.0, "{client}");
    json(&server.wait_with_output().unwrap());
}

#[test]
fn ends_whose_devices_have_addresses_of_different_families_name_both() {
    for command in ["lat", "pingpong", "connect"] {
        let server = format!("{command} --port 22032");
        let errors = failures(&server, &format!("{server} --ip ::1 127.0.0.1"));
        let names_both = |error: &String| {
            error.contains("this end's device is at ")
                && error.contains(", the peer's at ")
                && error.contains("::1")
        };
        // The end that detects the mismatch may exit before it sends anything: the other end then reports
        // only that its peer has ended.
        assert!(errors.iter().any(names_both), "{errors:?}");
    }
}

#[test]
fn errors_are_one_line() {
    for (arguments, expected, status) in [
        ("bw --port 28590 127.0.0.1", "start one there first", 1),
        (
            "bw --port 28590 name.invalid",
            "cannot connect to a server at name.invalid, TCP port 28590: failed to lookup",
            1,
        ),
        ("bw --port 0 127.0.0.1", "a client needs the port on which its server waits", 2),
        ("bw --qps 0 127.0.0.1", "expected a whole number from 1 to 131072", 2),
        ("bw --path-mtu 1500 127.0.0.1", "256, 512, 1024, 2048 or 4096", 2),
        ("pingpong --loss 101% 127.0.0.1", "loss", 2),
        (
            "lat --ip 192.0.2.1 --port 28591",
            "cannot listen on TCP port 28591: Cannot assign requested address (os error 99): 192.0.2.1 is not an address \
             of this machine ('nichrome rdma devices' lists them)",
            1,
        ),
        ("bw --transport iwarp --loss 1% --port 28592", "use 'nichrome wan' for it", 2),
        (
            "pingpong --transport star --key-file /nonexistent/key --port 28593",
            "/nonexistent/key cannot be read",
            1,
        ),
        ("lat --transport star --ip 192.0.2.1 --port 28594", "needs a key for its set-up", 2),
        ("connect --parallel 65 127.0.0.1", "expected a whole number from 1 to 64", 2),
        ("lat --capture /nonexistent/file --port 28595", "cannot write /nonexistent/file: No such file", 1),
        ("bw --capture /tmp 127.0.0.1", "cannot write /tmp: Is a directory", 1),
        ("bw --capture /dev/null/file 127.0.0.1", "cannot write /dev/null/file: Not a directory", 1),
        ("lat --stateless self 127.0.0.1", "--stateless needs --transport star", 2),
        ("bw --transport star --crc 127.0.0.1", "--crc needs --transport iwarp", 2),
    ] {
        let output = start(arguments).wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(expected), "{arguments}: {error}");
        assert_eq!(output.status.code(), Some(status), "{arguments}");
    }
}

#[test]
fn a_server_whose_port_another_program_has_says_how_to_choose_one() {
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = start(&format!("bw --port {port}")).wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let expected = format!(
        "nichrome: cannot listen on TCP port {port}: Address already in use (os error 98): another program has it, choose one \
         by --port\n"
    );
    assert_eq!(error, expected);
}

/// A client may be any program.
#[test]
fn servers_refuse_parameters_that_no_client_could_have_from_its_options() {
    let bandwidth = r#"{"op":"write","size":64,"qps":0,"depth":1,"regions":"Shared"}"#;
    let one = bandwidth.replace(r#""qps":0"#, r#""qps":1"#);
    let (large, deep) = (one.replace("64", "4294967295"), one.replace(r#""depth":1"#, r#""depth":65535"#));
    for (nth, (command, parameters)) in (0..).zip([
        ("bw", bandwidth),
        ("bw", &large),
        ("bw", &deep),
        ("lat", r#"{"op":"write","size":0,"iters":1}"#),
        ("lat", r#"{"op":"write","size":1,"iters":0}"#),
        ("connect", r#"{"connections":4000000000,"parallel":1,"keep":true}"#),
        ("connect", r#"{"connections":1,"parallel":20000,"keep":true}"#),
    ]) {
        let port = 28_600 + nth;
        let server = start(&format!("{command} --port {port}"));
        let mut client = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(client) => break client,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        let offer = parameters.replacen('{', r#"{"transport":"roce","#, 1);
        client.write_all(format!("{offer}\n").as_bytes()).unwrap();
        let output = server.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("the client's parameters are out of their ranges"), "{parameters}: {error}");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// A client that receives the server's TERMINATE may exit before the server's program checks its connections.
#[test]
fn a_server_of_bandwidth_names_the_cause_that_ended_an_iwarp_stream() {
    for (nth, op) in ["write", "send"].into_iter().enumerate() {
        let common = format!("bw --transport iwarp --crc --port {}", 28_543 + nth);
        let errors = failures(&common, &format!("{common} --op {op} --corrupt 20% --seed 1 127.0.0.1"));
        assert!(errors[1].ends_with(": a segment of the peer had a wrong CRC\n"), "{errors:?}");
    }
}

/// The kernel ends iWARP's streams with the killed process.
#[test]
fn an_end_whose_peer_is_killed_says_so() {
    let commands =
        [("bw", "--duration 60s"), ("bw --op send", "--duration 60s"), ("lat", "--iters 10000000")];
    for (nth, (command, long)) in commands.into_iter().enumerate() {
        for killed in 0..2 {
            let common = format!("{command} --transport iwarp --port {}", 28_546 + nth);
            let client = start(&format!("{common} {long} --capture - 127.0.0.1"));
            let mut ends = [client, start(&common)];
            let mut captured = ends[0].stdout.take().unwrap();
            // The client has begun to measure.
            captured.read_exact(&mut [0; 100_000]).unwrap();
            ends[killed].kill().unwrap();
            thread::spawn(move || io::copy(&mut captured, &mut io::sink()));
            let [client, server] = ends.map(|end| end.wait_with_output().unwrap());
            let error = String::from_utf8([client, server][1 - killed].stderr.clone()).unwrap();
            let error = error.lines().last().unwrap();
            let expected = ["nichrome: the peer has ended", "nichrome: the peer closed the TCP connection"];
            assert!(expected.iter().any(|expected| error.starts_with(expected)), "{common}: {error}");
        }
    }
}

/// Runs both ends until they fail; returns the error of client and server.
fn failures(server: &str, client: &str) -> [String; 2] {
    [start(client), start(server)].map(|child| {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{client}");
        String::from_utf8(output.stderr).unwrap()
    })
}

#[test]
fn both_ends_report_that_their_transports_differ() {
    for (nth, command) in ["lat", "bw", "connect"].into_iter().enumerate() {
        let port = 28_560 + nth;
        for transport in ["star", "iwarp"] {
            let server = format!("{command} --transport {transport} --port {port}");
            let errors = failures(&server, &format!("{command} --port {port} 127.0.0.1"));
            assert!(
                errors.iter().all(|error| error.contains("both need the same --transport")),
                "{errors:?}"
            );
        }
    }
}

#[test]
fn an_end_whose_peer_is_not_reached_or_ends_does_not_wait_for_its_time_limit() {
    for (nth, (command, options, why)) in [
        ("lat", "--iters 10", ["Write completed in error: RetryExceeded", "the peer has ended"]),
        ("connect", "--connections 2", ["the peer does not answer", "the client has ended"]),
    ]
    .into_iter()
    .enumerate()
    {
        let port = 28_570 + nth;
        let client = format!("{command} --port {port} {options} --loss 100% 127.0.0.1");
        let errors = failures(&format!("{command} --port {port}"), &client);
        assert!(errors.iter().zip(why).all(|(error, why)| error.contains(why)), "{errors:?}");
    }
}

/// A message that TCP has accepted may not have been sent yet.
#[test]
fn bandwidth_over_iwarp_counts_what_has_arrived() {
    let paced = "--rate 100mbit --size 16384 --depth 64 --duration 100ms";
    let [client, server] = both("bw --transport iwarp", 28_580, paced);
    assert!(number(&client, "gbps") < 0.11, "{client}");
    assert!(number(&server, "segments_received") >= number(&client, "messages"), "{server}");
}

#[test]
fn both_ends_report_that_their_keys_differ() {
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str, byte: u8| {
        let path = folder.path().join(name);
        std::fs::write(&path, [byte; 32]).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let keys = [key("one", 7), key("other", 8)];
    // The side with the lower address connects.
    for [server, client] in [["127.0.0.8", "127.0.0.9"], ["127.0.0.9", "127.0.0.8"]] {
        let options =
            |ip: &str, key: &str| format!("--transport star --port 28595 --ip {ip} --key-file {key}");
        let ends = [
            start(&format!("bw {}", options(server, &keys[0]))),
            start(&format!("bw {} {server}", options(client, &keys[1]))),
        ];
        for end in ends {
            let output = end.wait_with_output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && error.contains("same --key-file"), "{error}");
        }
    }
}

#[test]
fn a_stateless_server_holds_the_same_for_any_number_of_connections() {
    let folder = tempfile::tempdir().unwrap();
    let figure = folder.path().join("star.svg");
    let output = Command::new(NICHROME)
        .args(["bench", "star", "--quick", "--json", "--plot"])
        .arg(&figure)
        .output()
        .unwrap();
    let report = json(&output);
    let points = report["points"].as_array().unwrap();
    let held = |transport: &str| -> Vec<f64> {
        let of = points.iter().filter(|point| point["transport"] == transport);
        of.map(|point| number(point, "card_state_bytes")).collect()
    };
    let (star, roce) = (held("star"), held("roce"));
    assert!(star.iter().all(|bytes| *bytes == star[0]), "{star:?}");
    assert!(roce[2] > 500.0 * roce[0], "{roce:?}");
    for point in points {
        for name in ["gbps", "messages_per_s", "latency_us"] {
            assert!(number(point, name) > 0.0, "{name}: {point}");
        }
    }
    assert!(std::fs::read_to_string(figure).unwrap().contains("<svg"));

    let allocated = report["allocated"].as_array().unwrap();
    let total = |of: &Value, end: &str| -> f64 {
        let parts = of[end].as_object().unwrap().values();
        parts.map(|bytes| bytes.as_f64().unwrap()).sum()
    };
    for of in allocated {
        for end in ["server", "client"] {
            assert!((64.0..1000.0).contains(&number(&of[end], "region")), "{of}");
            assert!(number(&of[end], "queue_pair") > 0.0, "{of}");
            let parts = of[end].as_object().unwrap().values();
            assert!(parts.map(|bytes| bytes.as_i64().unwrap()).all(|bytes| bytes >= 0), "{of}");
        }
        assert!(number(&of["client"], "traffic") > 0.0, "{of}");
    }
    let [star, roce] =
        ["star", "roce"].map(|transport| allocated.iter().find(|of| of["transport"] == transport).unwrap());
    assert!(total(star, "client") > total(roce, "client"), "{star} {roce}");
    // One answer of each connection waits; the queue has room for 4,096.
    let most = number(star, "connections").min(4096.0) * 512.0;
    assert!((1.0..most).contains(&number(star, "answer_queue")), "{star}");
}
