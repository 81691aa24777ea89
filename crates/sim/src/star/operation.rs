//! The operation of clients and its messages.

/// A message and its segmentation into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) packets: u32,
    /// Payload of each packet but the last, in bytes.
    full: u32,
    last: u32,
}

impl Message {
    /// Creates a message of `len` bytes in packets of at most `full`, at least 1.
    pub(super) fn new(len: u32, full: u32) -> Self {
        let packets = len.div_ceil(full.max(1)).max(1);
        Self { packets, full, last: len - (packets - 1) * full }
    }

    /// Returns the length of the message, in bytes.
    pub(super) fn len(self) -> u64 {
        u64::from(self.packets - 1) * u64::from(self.full) + u64::from(self.last)
    }

    /// Returns the payload of packet `sequence` in a stream of such messages.
    pub(super) fn payload(self, sequence: u32) -> u32 {
        if self.ends_with(sequence) { self.last } else { self.full }
    }

    /// Returns true if packet `sequence` is the last of its message.
    pub(super) fn ends_with(self, sequence: u32) -> bool {
        (sequence + 1).is_multiple_of(self.packets)
    }
}

/// The operation of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// WRITE to the server.
    Write,
    /// An RPC: request and response by SEND. `reposts`: the server posts a RECV for each request.
    Rpc { response: Message, reposts: bool },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_into_full_packets_and_a_rest() {
        let message = Message::new(2800, 1400);
        assert_eq!(
            (message.packets, message.payload(0), message.payload(3), message.len()),
            (2, 1400, 1400, 2800)
        );
        let message = Message::new(2867, 1400);
        assert_eq!(
            (message.packets, message.payload(2), message.payload(3), message.len()),
            (3, 67, 1400, 2867)
        );
        assert!(message.ends_with(5) && !message.ends_with(3));
        assert_eq!(Message::new(0, 1400).packets, 1);
    }
}
