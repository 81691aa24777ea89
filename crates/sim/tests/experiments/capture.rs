//! Packets at any point of a world, recorded as pcapng by the writer of all captures of the project.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use nichrome_port::capture::{LinkType, PacketOptions, Reader, Writer};
use nichrome_sim::observe::{Capture, PacketSink, PointId};
use nichrome_sim::{HostId, Outline, Packet};
use nichrome_wire::{Instant, TcpFrame};

/// A file that can be read while it is written.
#[derive(Clone, Default)]
struct File(Rc<RefCell<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Pcapng(Writer<File>);

impl PacketSink for Pcapng {
    fn add_point(&mut self, name: &str) -> PointId {
        PointId(self.0.add_interface(LinkType::Ethernet, name, 0).unwrap())
    }

    fn record(&mut self, point: PointId, time: Instant, bytes: &[u8], len: usize) {
        self.0.write(point.0, time, Some(len as u32), [bytes], PacketOptions::default()).unwrap();
    }
}

#[test]
fn a_capture_holds_what_passed_each_point() {
    let file = File::default();
    let mut capture = Capture::to(Pcapng(Writer::new(file.clone(), "test")));
    let [wire, host] = ["wire", "host"].map(|name| capture.add_point(name));
    let frame = TcpFrame { payload: b"payload".to_vec(), ..TcpFrame::default() }.build();
    capture.record(wire, Instant::from_nanos(1), &frame.clone().into());
    capture.record(host, Instant::from_nanos(2_000_000_001), &frame.clone().into());
    let outline = Outline { len: 1514, to: HostId(1), ..Outline::default() };
    capture.record(wire, Instant::from_nanos(3_000_000_000), &outline.into());
    drop(capture);

    let bytes = file.0.take();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let (mut data, mut records) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next(&mut data).unwrap() {
        records.push((record.interface, record.time.as_nanos(), record.original_len, data.clone()));
    }
    let len = frame.len() as u32;
    assert_eq!(
        records,
        [(0, 1, len, frame.clone()), (1, 2_000_000_001, len, frame), (0, 3_000_000_000, 1514, Vec::new())]
    );
}

#[test]
fn without_a_sink_nothing_is_recorded() {
    let mut capture = Capture::default();
    let point = capture.add_point("wire");
    capture.record(point, Instant::ZERO, &Packet::Frame(vec![1, 2, 3]));
    assert!(!capture.is_on());
}
