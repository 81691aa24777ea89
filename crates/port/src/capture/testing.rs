//! Hand-built captures for tests.

use super::source::ByteOrder;
use super::{Progress, ReadError, Reader, Record};

/// The content of a capture: its records, the error that ended them, and the position.
pub(super) type Contents = (Vec<(Record, Vec<u8>)>, Option<ReadError>, Progress);

/// Reads a capture to its end, and checks that nothing follows an error.
pub(super) fn read_all(file: &[u8]) -> Contents {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error), Progress::default()),
    };
    let (mut records, mut data) = (Vec::new(), Vec::new());
    let error = loop {
        match reader.next(&mut data) {
            Ok(Some(record)) => records.push((record, data.clone())),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
        assert_eq!(reader.position().records, records.len() as u64);
    };
    assert!(data.is_empty());
    data.push(1);
    assert!(matches!(reader.next(&mut data), Ok(None)));
    assert!(data.is_empty());
    (records, error, reader.position())
}

/// Returns the error message that a capture ends with; empty without an error.
pub(super) fn message(file: &[u8]) -> String {
    read_all(file).1.map(|error| error.to_string()).unwrap_or_default()
}

/// A classic record: seconds, fraction, original length, bytes.
pub(super) type ClassicRecord<'a> = (u32, u32, u32, &'a [u8]);

/// A classic capture.
pub(super) fn classic(magic: [u8; 4], order: ByteOrder, link: u32, records: &[ClassicRecord<'_>]) -> Vec<u8> {
    let mut file = magic.to_vec();
    file.extend(order.put_u16(2));
    file.extend(order.put_u16(4));
    file.extend([0, 0, 65_535, link].map(|word| order.put_u32(word)).as_flattened());
    for &(seconds, fraction, original_len, bytes) in records {
        let header = [seconds, fraction, bytes.len() as u32, original_len];
        file.extend(header.map(|word| order.put_u32(word)).as_flattened());
        file.extend(bytes);
    }
    file
}

/// The code and the value of an option.
pub(super) type Opt<'a> = (u16, &'a [u8]);

/// A section of a pcapng capture.
pub(super) struct Section {
    pub(super) bytes: Vec<u8>,
    order: ByteOrder,
}

impl Section {
    pub(super) fn new(order: ByteOrder) -> Self {
        Self::with_options(order, &[])
    }

    pub(super) fn with_options(order: ByteOrder, options: &[Opt<'_>]) -> Self {
        let mut section = Self { bytes: Vec::new(), order };
        let mut body = order.put_u32(0x1A2B_3C4D).to_vec();
        body.extend(order.put_u16(1));
        body.extend(order.put_u16(0));
        body.extend([0xFF; 8]);
        body.extend(section.options(options));
        section.block(0x0A0D_0D0A, &body);
        section
    }

    pub(super) fn block(&mut self, block_type: u32, body: &[u8]) -> &mut Self {
        let padded = body.len().next_multiple_of(4);
        let length = self.order.put_u32(padded as u32 + 12);
        self.bytes.extend(self.order.put_u32(block_type));
        self.bytes.extend(length);
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len() + padded - body.len(), 0xEE);
        self.bytes.extend(length);
        self
    }

    pub(super) fn interface(&mut self, link: u16, snap_len: u32, options: &[Opt<'_>]) -> &mut Self {
        let mut body = self.order.put_u16(link).to_vec();
        body.extend([0, 0]);
        body.extend(self.order.put_u32(snap_len));
        body.extend(self.options(options));
        self.block(1, &body)
    }

    pub(super) fn enhanced(
        &mut self,
        interface: u32,
        ticks: u64,
        original_len: u32,
        bytes: &[u8],
        options: &[Opt<'_>],
    ) -> &mut Self {
        let words = [interface, (ticks >> 32) as u32, ticks as u32, bytes.len() as u32, original_len];
        let mut body = words.map(|word| self.order.put_u32(word)).as_flattened().to_vec();
        body.extend(bytes);
        body.resize(body.len().next_multiple_of(4), 0xEE);
        body.extend(self.options(options));
        self.block(6, &body)
    }

    pub(super) fn obsolete(
        &mut self,
        interface: u16,
        ticks: u64,
        original_len: u32,
        bytes: &[u8],
        dropped: Option<u16>,
        options: &[Opt<'_>],
    ) -> &mut Self {
        let mut body = self.order.put_u16(interface).to_vec();
        body.extend(self.order.put_u16(dropped.unwrap_or(0xFFFF)));
        let words = [(ticks >> 32) as u32, ticks as u32, bytes.len() as u32, original_len];
        body.extend(words.map(|word| self.order.put_u32(word)).as_flattened());
        body.extend(bytes);
        body.resize(body.len().next_multiple_of(4), 0xEE);
        body.extend(self.options(options));
        self.block(2, &body)
    }

    pub(super) fn simple(&mut self, bytes: &[u8], original_len: u32) -> &mut Self {
        let mut body = self.order.put_u32(original_len).to_vec();
        body.extend(bytes);
        self.block(3, &body)
    }

    pub(super) fn i64(&self, number: i64) -> [u8; 8] {
        match self.order {
            ByteOrder::Little => number.to_le_bytes(),
            ByteOrder::Big => number.to_be_bytes(),
        }
    }

    fn options(&self, options: &[Opt<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (code, value) in options {
            bytes.extend(self.order.put_u16(*code));
            bytes.extend(self.order.put_u16(value.len() as u16));
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0xEE);
        }
        bytes
    }
}

impl ByteOrder {
    fn put_u16(self, number: u16) -> [u8; 2] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }

    fn put_u32(self, number: u32) -> [u8; 4] {
        match self {
            Self::Little => number.to_le_bytes(),
            Self::Big => number.to_be_bytes(),
        }
    }
}
