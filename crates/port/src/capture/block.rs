//! pcapng blocks and options (draft-ietf-opsawg-pcapng, sections 3.1 and 3.5): read in either byte order,
//! written in little-endian order.

use super::source::{ByteOrder, Source};
use super::{PacketOptions, ReadError};
use std::io::Read;

pub(super) const SECTION_HEADER: u32 = 0x0A0D_0D0A;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
pub(super) const PACKET: u32 = 2;
pub(super) const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;

pub(super) const OPTION_END: u16 = 0;
pub(super) const OPTION_COMMENT: u16 = 1;
pub(super) const OPTION_IF_NAME: u16 = 2;
pub(super) const OPTION_FLAGS: u16 = 2;
pub(super) const OPTION_DROPCOUNT: u16 = 4;
pub(super) const OPTION_USERAPPL: u16 = 4;
pub(super) const OPTION_TSRESOL: u16 = 9;
pub(super) const OPTION_TSOFFSET: u16 = 14;

/// A block being read. Its length field has been validated.
pub(super) struct Block {
    order: ByteOrder,
    length: u32,
    /// Unread bytes of the body.
    left: u32,
}

impl Block {
    /// Begins a block of which `consumed` bytes have been read, including the length field.
    pub(super) fn start<R: Read>(
        source: &mut Source<R>,
        order: ByteOrder,
        length: [u8; 4],
        consumed: u32,
    ) -> Result<Self, ReadError> {
        let length = order.u32(length);
        match length.checked_sub(consumed + 4) {
            Some(left) if length.is_multiple_of(4) => {
                source.unit_len(u64::from(length));
                Ok(Self { order, length, left })
            }
            _ => {
                let what = format!("a block of {length} bytes, which is too short or no multiple of 4");
                Err(source.corrupt(what))
            }
        }
    }

    /// Reserves `len` of the unread bytes for the caller to read.
    #[inline]
    pub(super) fn claim<R: Read>(&mut self, source: &Source<R>, len: u32) -> Result<(), ReadError> {
        match self.left.checked_sub(len) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let what = format!("a block of {} bytes, too short for its content", self.length);
                Err(source.corrupt(what))
            }
        }
    }

    pub(super) fn read<R: Read, const N: usize>(
        &mut self,
        source: &mut Source<R>,
    ) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.claim(source, N as u32)?;
        source.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn skip<R: Read>(&mut self, source: &mut Source<R>, len: u32) -> Result<(), ReadError> {
        self.claim(source, len)?;
        source.skip(u64::from(len))
    }

    /// Reads the header of the next option; `None` after the last.
    pub(super) fn option<R: Read>(
        &mut self,
        source: &mut Source<R>,
    ) -> Result<Option<OptionHeader>, ReadError> {
        if self.left == 0 {
            return Ok(None);
        }
        let [code0, code1, len0, len1] = self.read(source)?;
        let code = self.order.u16([code0, code1]);
        let len = self.order.u16([len0, len1]);
        Ok((code != OPTION_END).then_some(OptionHeader { code, len }))
    }

    /// Reads a packet's options. Joins the comments by line breaks, and skips a comment that would exceed
    /// 65,535 bytes in total. An option that exceeds the block ends the scan without an error: options do not
    /// affect the packet.
    pub(super) fn packet_options<R: Read>(
        &mut self,
        source: &mut Source<R>,
        options: &mut OwnedOptions,
    ) -> Result<(), ReadError> {
        let OwnedOptions { comment, flags, dropped } = options;
        while self.left >= 4
            && let Some(option) = self.option(source)?
            && option.padded_len() <= self.left
        {
            match (option.code, option.len) {
                (OPTION_FLAGS, 4) => {
                    *flags = Some(self.order.u32(self.read(source)?));
                    continue;
                }
                (OPTION_DROPCOUNT, 8) => {
                    *dropped = Some(self.order.i64(self.read(source)?).cast_unsigned());
                    continue;
                }
                _ => {}
            }
            let line_break = usize::from(!comment.is_empty());
            let room = usize::from(u16::MAX).saturating_sub(comment.len() + line_break);
            if option.code != OPTION_COMMENT {
                self.skip(source, option.padded_len())?;
                continue;
            }
            let text = self.value(source, &option)?;
            // U+FFFD is longer than the byte that it replaces.
            let text = String::from_utf8_lossy(&text);
            if text.len() > room {
                continue;
            }
            if line_break > 0 {
                comment.push('\n');
            }
            comment.push_str(&text);
        }
        Ok(())
    }

    /// Returns the name of the program that wrote the section; empty if its header has none. An option that
    /// exceeds the block ends the scan without an error: the name does not affect packets.
    pub(super) fn application<R: Read>(&mut self, source: &mut Source<R>) -> Result<String, ReadError> {
        while self.left >= 4
            && let Some(option) = self.option(source)?
            && option.padded_len() <= self.left
        {
            if option.code == OPTION_USERAPPL {
                return Ok(String::from_utf8_lossy(&self.value(source, &option)?).into_owned());
            }
            self.skip(source, option.padded_len())?;
        }
        Ok(String::new())
    }

    /// Reads the value of an option.
    pub(super) fn value<R: Read>(
        &mut self,
        source: &mut Source<R>,
        option: &OptionHeader,
    ) -> Result<Vec<u8>, ReadError> {
        let mut value = vec![0; option.padded_len() as usize];
        self.claim(source, option.padded_len())?;
        source.fill(&mut value)?;
        value.truncate(usize::from(option.len));
        Ok(value)
    }

    /// Skips the padding that follows a value of `len` bytes.
    pub(super) fn skip_padding<R: Read>(
        &mut self,
        source: &mut Source<R>,
        len: u32,
    ) -> Result<(), ReadError> {
        let padding = len.wrapping_neg() % 4;
        self.skip(source, padding.min(self.left))
    }

    /// Skips the unread bytes and checks the repeated length.
    pub(super) fn end<R: Read>(self, source: &mut Source<R>) -> Result<(), ReadError> {
        source.skip(u64::from(self.left))?;
        let mut repeated = [0; 4];
        source.fill(&mut repeated)?;
        let repeated = self.order.u32(repeated);
        if repeated != self.length {
            let length = self.length;
            return Err(source.corrupt(format!("a block of {length} bytes that ends as one of {repeated}")));
        }
        Ok(())
    }
}

/// A packet's options, in memory that is reused.
#[derive(Debug, Default)]
pub(super) struct OwnedOptions {
    pub(super) comment: String,
    pub(super) flags: Option<u32>,
    pub(super) dropped: Option<u64>,
}

impl OwnedOptions {
    /// Removes all options.
    pub(super) fn clear(&mut self) {
        self.comment.clear();
        (self.flags, self.dropped) = (None, None);
    }

    pub(super) fn borrowed(&self) -> PacketOptions<'_> {
        let comment = Some(&*self.comment).filter(|comment| !comment.is_empty());
        PacketOptions { comment, flags: self.flags, dropped: self.dropped }
    }
}

/// An option's code and length.
pub(super) struct OptionHeader {
    pub(super) code: u16,
    pub(super) len: u16,
}

impl OptionHeader {
    /// The length of the value with its padding to 32 bits.
    pub(super) fn padded_len(&self) -> u32 {
        u32::from(self.len).next_multiple_of(4)
    }
}

/// Appends a block's type and a length placeholder, which [`end_block`] fills in. Returns the block's offset.
pub(super) fn begin_block(blocks: &mut Vec<u8>, block_type: u32) -> usize {
    let start = blocks.len();
    put_u32(blocks, block_type);
    put_u32(blocks, 0);
    start
}

/// Ends the block at offset `start`: writes its length into both length fields.
pub(super) fn end_block(blocks: &mut Vec<u8>, start: usize) {
    let length = (blocks.len() - start + 4) as u32;
    set_u32(blocks, start + 4, length);
    put_u32(blocks, length);
}

pub(super) fn put_u32(blocks: &mut Vec<u8>, number: u32) {
    blocks.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn set_u32(blocks: &mut [u8], at: usize, number: u32) {
    if let Some(place) = blocks.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

/// Pads the bytes from `start` on to a multiple of 4.
pub(super) fn put_padding(blocks: &mut Vec<u8>, start: usize) {
    let len = blocks.len() - start;
    blocks.resize(start + len.next_multiple_of(4), 0);
}

/// Appends an option, truncated to the 65,535 bytes that its length field can express.
pub(super) fn put_option(blocks: &mut Vec<u8>, code: u16, value: &[u8]) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    blocks.extend_from_slice(&code.to_le_bytes());
    blocks.extend_from_slice(&len.to_le_bytes());
    let start = blocks.len();
    blocks.extend_from_slice(&value[..usize::from(len)]);
    put_padding(blocks, start);
}

/// Appends a text option, truncated at a character boundary if it is too long.
pub(super) fn put_text_option(blocks: &mut Vec<u8>, code: u16, text: &str) {
    let len = text.floor_char_boundary(usize::from(u16::MAX));
    put_option(blocks, code, &text.as_bytes()[..len]);
}

/// Appends a packet's options, if it has any, and their end.
pub(super) fn put_packet_options(blocks: &mut Vec<u8>, options: PacketOptions<'_>) {
    let PacketOptions { comment, flags, dropped } = options;
    if let Some(comment) = comment {
        put_text_option(blocks, OPTION_COMMENT, comment);
    }
    if let Some(flags) = flags {
        put_option(blocks, OPTION_FLAGS, &flags.to_le_bytes());
    }
    if let Some(dropped) = dropped {
        put_option(blocks, OPTION_DROPCOUNT, &dropped.to_le_bytes());
    }
    if options != PacketOptions::default() {
        put_end_of_options(blocks);
    }
}

pub(super) fn put_end_of_options(blocks: &mut Vec<u8>) {
    blocks.extend([0; 4]);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Section, message};
    use super::*;

    #[test]
    fn broken_blocks_are_named() {
        let order = ByteOrder::Big;
        let start = || {
            let mut section = Section::new(order);
            section.interface(1, 0, &[]);
            section
        };
        let broken = |build: &dyn Fn(&mut Section)| {
            let mut section = start();
            build(&mut section);
            message(&section.bytes)
        };
        let at = start().bytes.len();
        let corrupt = |what: &str| format!("the capture is corrupt at byte {at}: {what}");
        let raw = |length: u32| {
            move |section: &mut Section| {
                section.bytes.extend(6u32.to_be_bytes());
                section.bytes.extend(length.to_be_bytes());
                section.bytes.extend([0; 64]);
            }
        };
        for length in [0, 8, 11, 33] {
            let what = format!("a block of {length} bytes, which is too short or no multiple of 4");
            assert_eq!(broken(&raw(length)), corrupt(&what));
        }
        for length in [12, 28] {
            let what = format!("a block of {length} bytes, too short for its content");
            assert_eq!(broken(&raw(length)), corrupt(&what));
        }
        assert_eq!(broken(&raw(32)), corrupt("a block of 32 bytes that ends as one of 0"));
        let mut section = start();
        section.block(5, &[]);
        *section.bytes.last_mut().unwrap() += 1;
        assert_eq!(message(&section.bytes), corrupt("a block of 12 bytes that ends as one of 13"));
        let words = [0, 0, 0, 9, 9].map(u32::to_be_bytes);
        let long_packet = [words.as_flattened(), &[0; 8]].concat();
        let long_option = [0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 9, 1, 1, 1, 1];
        let what = "a block of 40 bytes, too short for its content";
        assert_eq!(broken(&|section| _ = section.block(6, &long_packet)), corrupt(what));
        let what = "a block of 28 bytes, too short for its content";
        assert_eq!(broken(&|section| _ = section.block(1, &long_option)), corrupt(what));
        for (option, value) in [(9, &[9, 9][..]), (14, &[0; 4])] {
            let what = format!("an interface whose time option has {} bytes", value.len());
            assert_eq!(broken(&|section| _ = section.interface(1, 0, &[(option, value)])), corrupt(&what));
        }
    }

    #[test]
    fn broken_section_headers_are_named() {
        let mut file = Section::new(ByteOrder::Big).bytes;
        file[9] = 0;
        assert!(message(&file).ends_with("a section header without a byte-order magic number"));
        let mut file = Section::new(ByteOrder::Big).bytes;
        file[13] = 2;
        assert!(message(&file).ends_with("version 2.0 of pcapng, where 1 is the only one known"));
        let mut file = Section::new(ByteOrder::Big).bytes;
        file[7] = 24;
        assert!(message(&file).ends_with("a block of 24 bytes, too short for its content"));
    }
}
