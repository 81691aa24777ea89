//! tshark dissects datagrams of ours: every kind of message, with nothing malformed and the fields where they
//! belong.

use std::fs::File;

use nichrome_wire::cm::{MAD_LEN, Mad, Message, TransactionId};
use pcap_file::pcap::{PcapPacket, PcapWriter};

use super::generated::{KINDS, message};
use crate::installed::tshark;

/// A frame with a datagram from queue pair 1 to queue pair 1.
fn frame(mad: &[u8; MAD_LEN]) -> Vec<u8> {
    let mut udp = vec![0xC0, 0, 0x12, 0xB7, 0, 0, 0, 0];
    udp.extend([0x64, 0x40, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0]);
    udp.extend([0x80, 1, 0, 0, 0, 0, 0, 1]);
    udp.extend(mad);
    udp.extend([0; 4]);
    let len = (udp.len() as u16).to_be_bytes();
    udp[4..6].copy_from_slice(&len);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0]);
    frame.extend((20 + udp.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(udp);
    frame
}

/// A capture file of these messages.
fn capture(messages: &[Message]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cm.pcap");
    let mut writer = PcapWriter::new(File::create(&path).unwrap()).unwrap();
    for message in messages {
        let frame = frame(&Mad { transaction: TransactionId(7), message: *message }.to_bytes());
        let len = frame.len() as u32;
        writer.write_packet(&PcapPacket::new(std::time::Duration::ZERO, len, &frame)).unwrap();
    }
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// The fields of the only frame with the first of them.
fn fields<const N: usize>(path: &str, names: [&str; N]) -> [u64; N] {
    let mut arguments = vec!["-r", path, "-Y", names[0], "-T", "fields"];
    arguments.extend(names.iter().flat_map(|name| ["-e", name]));
    let lines = tshark(&arguments);
    assert_eq!(lines.len(), 1, "{names:?}");
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{text}")),
        None => text.parse().unwrap_or_else(|_| panic!("{text}")),
    };
    lines[0].split('\t').map(number).collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn every_message_is_dissected_and_none_is_malformed() {
    let messages: Vec<Message> = (0..KINDS).map(|kind| message(kind, 1)).collect();
    let (_folder, path) = capture(&messages);
    assert_eq!(tshark(&["-r", &path, "-Y", "_ws.malformed"]), Vec::<String>::new());
    let attributes = ["-T", "fields", "-e", "infiniband.mad.attributeid"];
    let read = tshark(&[&["-r", &path, "-Y", "infiniband.mad.mgmtclass == 7"][..], &attributes].concat());
    let ours: Vec<String> =
        messages.iter().map(|message| format!("{:#06x}", message.attribute() as u16)).collect();
    assert_eq!(read, ours);
}

#[test]
fn the_fields_of_a_request_are_where_tshark_reads_them() {
    let request = message(0, 2);
    let Message::Req(req) = request else { panic!() };
    let (_folder, path) = capture(&[request]);
    // Wireshark 4.0 reads flow label and rate of the path from other bits than Linux writes them to.
    let names = [
        "infiniband.cm.req",
        "infiniband.cm.req.localqpn",
        "infiniband.cm.req.responderres",
        "infiniband.cm.req.initdepth",
        "infiniband.cm.req.remoteresptout",
        "infiniband.cm.req.transpsvctype",
        "infiniband.cm.req.startpsn",
        "infiniband.cm.req.localresptout",
        "infiniband.cm.req.retrcount",
        "infiniband.cm.req.pkey",
        "infiniband.cm.req.pppmtu",
        "infiniband.cm.req.rnrretrcount",
        "infiniband.cm.req.maxcmretr",
        "infiniband.cm.req.prim_hoplim",
        "infiniband.cm.req.prim_localacktout",
    ];
    let ours = [
        u64::from(req.local.0),
        u64::from(req.qp.value()),
        u64::from(req.responder_resources),
        u64::from(req.initiator_depth),
        u64::from(req.remote_timeout.exponent()),
        req.transport as u64,
        u64::from(req.psn.value()),
        u64::from(req.local_timeout.exponent()),
        u64::from(req.retry_count),
        u64::from(req.pkey.0),
        req.path_mtu as u64 + 1,
        u64::from(req.rnr_retry),
        u64::from(req.max_cm_retries),
        u64::from(req.primary.hop_limit),
        u64::from(req.primary.ack_timeout.exponent()),
    ];
    assert_eq!(fields(&path, names), ours);
}

#[test]
fn the_fields_of_a_reply_and_a_rejection_are_where_tshark_reads_them() {
    let messages = [message(3, 3), message(2, 4)];
    let [Message::Rep(rep), Message::Rej(rej)] = messages else { panic!() };
    let (_folder, path) = capture(&messages);
    let names = [
        "infiniband.cm.rep",
        "infiniband.cm.rep.remotecommid",
        "infiniband.cm.rep.localqpn",
        "infiniband.cm.rep.startpsn",
        "infiniband.cm.rep.respres",
        "infiniband.cm.rep.initdepth",
        "infiniband.cm.rep.tgtackdelay",
        "infiniband.cm.rep.rnrretrcount",
    ];
    let ours = [
        u64::from(rep.ids.local.0),
        u64::from(rep.ids.remote.0),
        u64::from(rep.qp.value()),
        u64::from(rep.psn.value()),
        u64::from(rep.responder_resources),
        u64::from(rep.initiator_depth),
        u64::from(rep.ack_delay.exponent()),
        u64::from(rep.rnr_retry),
    ];
    assert_eq!(fields(&path, names), ours);
    let names =
        ["localcommid", "msgrej", "rejinfolen", "reason"].map(|name| format!("infiniband.cm.rej.{name}"));
    let ours = [
        u64::from(rej.ids.local.0),
        rej.rejected as u64,
        u64::from(rej.information_len),
        u64::from(rej.reason.0),
    ];
    assert_eq!(fields(&path, names.each_ref().map(String::as_str)), ours);
}
