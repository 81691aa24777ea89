//! Runs the command, and writes and reads captures for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nichrome_port::capture::{self, LinkType, PacketOptions, Record, Writer};
use nichrome_wire::{
    AddressPair, EtherType, EthernetRepr, Fragment, HeaderOptions, Instant, IpProtocol, Ipv4Repr, MacAddr,
    SeqNumber, Tags, TcpFlags, TcpFrame, TrafficClass, UdpChecksum, UdpHeader, UdpRepr,
};
use serde_json::Value;

pub(crate) const PROFILES: [&str; 3] = ["gro", "netfpga", "npu"];

/// Returns the captures of real TCP traffic.
pub(crate) fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let mut captures: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    captures.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tcp-")));
    captures.sort();
    assert_eq!(captures.len(), 7);
    captures
}

/// Returns the path of one of these captures.
pub(crate) fn capture(name: &str) -> String {
    let captures = captures();
    let path = captures.iter().find(|path| path.file_stem().is_some_and(|stem| stem == name));
    text(path.unwrap())
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

pub(crate) fn nichrome(arguments: &[&str]) -> Output {
    command(arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
    command.args(arguments);
    command
}

/// Runs the command with `input` as its standard input.
pub(crate) fn nichrome_fed(arguments: &[&str], input: &[u8]) -> Output {
    let piped =
        command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = piped.unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = feeder.join().unwrap();
    output
}

pub(crate) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub(crate) fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Returns the output of a command that must succeed and print nothing on standard error.
pub(crate) fn printed(arguments: &[&str]) -> String {
    let output = nichrome(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {}", stderr(&output));
    stdout(&output).to_owned()
}

/// Returns the summary that `nichrome coalesce` prints as JSON.
pub(crate) fn summary(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[&["coalesce", "--json"], arguments].concat())).unwrap()
}

pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// Returns every complete record of a capture with its bytes.
pub(crate) fn records(path: &Path) -> Vec<(Record, Vec<u8>)> {
    let mut reader = capture::open(path).unwrap();
    let mut records = Vec::new();
    let mut bytes = Vec::new();
    while let Some(record) = reader.next(&mut bytes).unwrap() {
        records.push((record, bytes.clone()));
    }
    records
}

/// A frame of a capture to be written.
pub(crate) struct Given<'a> {
    pub(crate) interface: u32,
    pub(crate) nanos: u64,
    pub(crate) original_len: Option<u32>,
    pub(crate) bytes: &'a [u8],
}

/// Writes a capture with interfaces of these link types.
pub(crate) fn write_capture<'a>(
    path: &Path,
    link_types: &[LinkType],
    frames: impl IntoIterator<Item = Given<'a>>,
) -> String {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "test");
    for link_type in link_types {
        writer.add_interface(*link_type, "test", 0).unwrap();
    }
    for Given { interface, nanos, original_len, bytes } in frames {
        writer
            .write(interface, Instant::from_nanos(nanos), original_len, [bytes], PacketOptions::default())
            .unwrap();
    }
    writer.finish().unwrap();
    std::fs::write(path, file).unwrap();
    text(path)
}

/// Returns consecutive data segments of one flow.
pub(crate) fn segments(port: u16, count: u32) -> Vec<Vec<u8>> {
    let segment = |nth: u32| TcpFrame {
        src_port: port,
        seq: SeqNumber(nth * 1000),
        payload: vec![nth as u8; 1000],
        flags: TcpFlags::ACK,
        ..TcpFrame::default()
    };
    (0..count).map(|nth| segment(nth).build()).collect()
}

/// Returns consecutive UDP datagrams of one flow, in frames whose IPv4 identification increases or is 0.
pub(crate) fn datagrams(port: u16, lens: &[usize], counts: bool) -> Vec<Vec<u8>> {
    let ident = |nth: usize| if counts { nth as u16 } else { 0 };
    lens.iter()
        .enumerate()
        .map(|(nth, len)| datagram((port, 443), ident(nth), &vec![nth as u8; *len]))
        .collect()
}

/// Returns a frame with a UDP datagram from one port to another.
pub(crate) fn datagram((src_port, dst_port): (u16, u16), ident: u16, payload: &[u8]) -> Vec<u8> {
    let mac = |last| MacAddr([2, 0, 0, 0, 0, last]);
    let ethernet = EthernetRepr::new(mac(2), mac(1), Tags::default(), EtherType::IPV4).unwrap();
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let ip = Ipv4Repr {
        src,
        dst,
        protocol: IpProtocol::UDP,
        ttl: 64,
        tos: TrafficClass::default(),
        ident,
        dont_fragment: true,
        fragment: Fragment::default(),
        options: HeaderOptions::default(),
    };
    let udp = UdpRepr { src_port, dst_port, checksum: UdpChecksum::Present };
    let mut frame = Vec::new();
    ethernet.emit(&mut frame);
    ip.emit(UdpHeader::LEN + payload.len(), &mut frame).unwrap();
    udp.emit(&AddressPair::V4 { src, dst }, payload, &mut frame).unwrap();
    frame
}
