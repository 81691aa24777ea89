//! Control messages of datagrams (cmsg(3)).

use nichrome_wire::TrafficClass;

/// A buffer for the control messages of one datagram, aligned for cmsghdr.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

const HEADER_LEN: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();

impl Control {
    /// Capacity in bytes: three messages of one integer each.
    pub(super) const CAPACITY: usize = 96;

    pub(super) const fn empty() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    /// Appends a message.
    #[inline]
    pub(super) fn push<const LEN: usize>(&mut self, level: libc::c_int, kind: libc::c_int, data: [u8; LEN]) {
        let message = &mut self.bytes[self.len..][..HEADER_LEN + LEN];
        message[..WORD].copy_from_slice(&(HEADER_LEN + LEN).to_ne_bytes());
        message[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        message[WORD + 4..WORD + 8].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER_LEN..].copy_from_slice(&data);
        self.len += (HEADER_LEN + LEN).next_multiple_of(WORD);
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the whole buffer for the kernel to write to.
    pub(super) fn room(&mut self) -> &mut [u8; Self::CAPACITY] {
        &mut self.bytes
    }

    /// Iterates over the messages in the first `len` bytes.
    #[inline]
    pub(super) fn messages(&self, len: usize) -> Messages<'_> {
        Messages { rest: self.bytes.get(..len).unwrap_or_default() }
    }
}

/// An iterator over control messages.
pub(super) struct Messages<'a> {
    rest: &'a [u8],
}

/// A control message.
pub(super) struct Message<'a> {
    level: libc::c_int,
    kind: libc::c_int,
    data: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        let len = usize::from_ne_bytes(*self.rest.first_chunk()?);
        let level = i32::from_ne_bytes(*self.rest.get(WORD..)?.first_chunk()?);
        let kind = i32::from_ne_bytes(*self.rest.get(WORD + 4..)?.first_chunk()?);
        let data = self.rest.get(HEADER_LEN..len)?;
        self.rest = self.rest.get(len.next_multiple_of(WORD)..).unwrap_or_default();
        Some(Message { level, kind, data })
    }
}

/// Metadata that the kernel attaches to a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ancillary {
    pub(super) traffic_class: TrafficClass,
    /// Size of each datagram that UDP_GRO has coalesced, in bytes; the last may be shorter.
    pub(super) segment_size: Option<usize>,
}

impl Ancillary {
    #[inline]
    pub(super) fn of(messages: Messages<'_>) -> Self {
        let mut ancillary = Self::default();
        for Message { level, kind, data } in messages {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    ancillary.traffic_class.0 = data.first().copied().unwrap_or(0);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => ancillary.traffic_class.0 = number(data) as u8,
                (libc::SOL_UDP, libc::UDP_GRO) => ancillary.segment_size = usize::try_from(number(data)).ok(),
                _ => {}
            }
        }
        ancillary
    }
}

/// Decodes a message's integer; 0 if it is too short.
fn number(data: &[u8]) -> libc::c_int {
    data.first_chunk().map_or(0, |bytes| libc::c_int::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back() {
        let mut control = Control::empty();
        control.push(libc::IPPROTO_IP, libc::IP_TOS, [0xBB]);
        control.push(libc::SOL_UDP, libc::UDP_GRO, 4160i32.to_ne_bytes());
        let ancillary = Ancillary::of(control.messages(control.as_slice().len()));
        let expected = Ancillary { traffic_class: TrafficClass(0xBB), segment_size: Some(4160) };
        assert_eq!(ancillary, expected);
        assert_eq!(Ancillary::of(control.messages(0)), Ancillary::default());
    }

    #[test]
    fn a_message_cut_short_is_left_out() {
        let mut control = Control::empty();
        control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 3i32.to_ne_bytes());
        let len = control.as_slice().len();
        assert_eq!(Ancillary::of(control.messages(len)).traffic_class, TrafficClass(3));
        for cut in 0..HEADER_LEN + 4 {
            assert_eq!(Ancillary::of(control.messages(cut)), Ancillary::default());
        }
    }
}
