//! Why an aggregate ended, why a frame passed, why a frame was dropped: stable names.

/// Declares an enum of reasons with a stable name for each, and the counters for it.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every reason, in the order of its counter.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in reports and JSON: lower case, words joined by `_`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl Reason for $name {
            const ALL: &'static [Self] = Self::ALL;

            fn name(self) -> &'static str {
                Self::name(self)
            }

            #[inline]
            fn position(self) -> usize {
                self as usize
            }
        }
    };
}

/// A set of named reasons that can be counted.
pub trait Reason: Copy + Sized + 'static {
    /// Every reason, in the order of its counter.
    const ALL: &'static [Self];
    /// The stable name.
    fn name(self) -> &'static str;
    /// The place of the reason in `ALL`.
    fn position(self) -> usize;
}

reasons! {
    /// Why an aggregate, or a single held segment, was handed to the host.
    FlushReason {
        /// No more fits: the configured maximum length.
        MaxLength = "max_length",
        /// No more fits: the configured maximum number of segments.
        MaxSegments = "max_segments",
        /// The last segment has PSH set.
        Psh = "psh",
        /// The last segment has FIN set.
        Fin = "fin",
        /// The last segment is shorter than those before it.
        ShortSegment = "short_segment",
        /// The next segment is longer than those before it.
        LongSegment = "long_segment",
        /// The next segment has other header fields (addresses, TTL, TOS, ECN, window, ACK number, options,
        /// …).
        UnequalField = "unequal_field",
        /// The next segment does not follow in sequence.
        OutOfOrder = "out_of_order",
        /// The next frame of the flow cannot be coalesced and must not overtake (SYN, FIN, RST, URG, pure
        /// ACK, …).
        Barrier = "barrier",
        /// A segment of another flow came, and the store has no room for another flow (`netfpga`).
        FlowMismatch = "flow_mismatch",
        /// The hold time is over.
        Timeout = "timeout",
        /// The connection is sparse: its inter-arrival time is above the hold limit, so holding would merge
        /// nothing.
        Sparse = "sparse",
        /// A gap in the sequence was not filled within the reorder hold time.
        ReorderTimeout = "reorder_timeout",
        /// The room for out-of-order segments is used up.
        ReorderFull = "reorder_full",
        /// The receive batch ended.
        EndOfBatch = "end_of_batch",
        /// Another connection needed the place in the table, or the aggregate.
        Evicted = "evicted",
        /// The driver drained the engine.
        Drain = "drain",
    }
}

reasons! {
    /// Why a frame was passed to the host as received.
    PassReason {
        /// Neither TCP over IP nor, if the engine coalesces datagrams, UDP over IP.
        NotTcp = "not_tcp",
        /// Lengths or versions in its headers are wrong, or it is truncated.
        Malformed = "malformed",
        /// An IP fragment.
        Fragment = "fragment",
        /// IP options (IPv4), or extension headers that the profile does not merge or that are too long to
        /// keep.
        IpOptions = "ip_options",
        /// Bytes after the IP packet that could not be re-created.
        Trailer = "trailer",
        /// A checksum is wrong, and the configuration leaves the frame to the host.
        BadChecksum = "bad_checksum",
        /// A checksum is right, but not the value that a sender computes (IPv4 and TCP: 0xFFFF instead of 0).
        UnusualChecksum = "unusual_checksum",
        /// SYN is set.
        Syn = "syn",
        /// FIN is set.
        Fin = "fin",
        /// RST is set.
        Rst = "rst",
        /// URG is set.
        Urg = "urg",
        /// PSH is set, and the segment extends no held aggregate.
        Psh = "psh",
        /// CWR or another bit of congestion signalling is set: it belongs to this segment alone.
        CongestionFlags = "congestion_flags",
        /// No ACK flag, or another combination that data does not have.
        UnusualFlags = "unusual_flags",
        /// No payload: an acknowledgement, a keepalive or a window probe.
        PureAck = "pure_ack",
        /// A UDP datagram without payload.
        EmptyDatagram = "empty_datagram",
        /// A UDP datagram without a checksum: a re-created datagram would have one.
        NoChecksum = "no_checksum",
        /// TCP options that the profile does not merge.
        TcpOptions = "tcp_options",
        /// Not the next in sequence, and the profile does not reorder.
        OutOfOrder = "out_of_order",
        /// Some of its bytes were delivered or are held already: a retransmission or a keepalive.
        Old = "old",
        /// Further ahead in sequence than the reorder window (`reorder_bytes`).
        FarAhead = "far_ahead",
        /// Every aggregate is in use.
        PoolEmpty = "pool_empty",
        /// The table is full and nothing could be evicted.
        TableFull = "table_full",
    }
}

reasons! {
    /// Why a frame was dropped.
    DropReason {
        /// The IPv4 header checksum is wrong.
        IpChecksum = "ip_checksum",
        /// The TCP checksum is wrong.
        TcpChecksum = "tcp_checksum",
        /// The UDP checksum is wrong.
        UdpChecksum = "udp_checksum",
        /// Its bytes were received before, and the host has acknowledged them; under the paper's rules
        /// (Algorithms 1 and 2), also if it only begins with bytes that were received before.
        Duplicate = "duplicate",
    }
}
