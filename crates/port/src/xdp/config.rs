//! Configuration of an AF_XDP socket.

/// Size of a UMEM chunk. Longer frames arrive in several chunks and are copied together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkSize {
    /// 2,048 bytes, of which the kernel uses 1,792: for an MTU of 1,500.
    #[default]
    Small,
    /// 4,096 bytes, of which the kernel uses 3,840.
    Large,
}

impl ChunkSize {
    /// Returns the size in bytes.
    pub(super) const fn bytes(self) -> u32 {
        match self {
            Self::Small => 2048,
            Self::Large => 4096,
        }
    }

    /// Returns how many bytes of a received frame fit into a chunk: the kernel leaves room before them
    /// (`XDP_PACKET_HEADROOM`).
    pub(super) const fn frame_bytes(self) -> u32 {
        self.bytes() - 256
    }
}

/// How frames get from the driver into the UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpCopy {
    /// Zero-copy if the driver supports it, else copied by the kernel.
    #[default]
    WhereNeeded,
    /// Always copied by the kernel.
    Always,
}

/// Memory of a queue and copy mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// Receive chunks: the maximum number of pending frames; a frame in several chunks counts for each. As
    /// many frames again can be held as copies.
    pub receive_chunks: u32,
    /// Transmit chunks.
    pub transmit_chunks: u32,
    /// Size of a chunk.
    pub chunk_size: ChunkSize,
    /// Copy mode.
    pub copy: XdpCopy,
}

impl XdpConfig {
    /// Returns the size of the queue's UMEM in bytes: memory that the kernel locks.
    pub const fn locked_bytes(&self) -> u64 {
        (self.receive_chunks as u64 + self.transmit_chunks as u64) * self.chunk_size.bytes() as u64
    }
}

impl Default for XdpConfig {
    /// 16 MB for reception, and up to 16 MB for copies; 2 MB for transmission. With half of it, a card that
    /// has just started loses some hundred frames of a burst of 8,192, because it touches its own memory for
    /// the first time.
    fn default() -> Self {
        Self {
            receive_chunks: 8192,
            transmit_chunks: 1024,
            chunk_size: ChunkSize::default(),
            copy: XdpCopy::default(),
        }
    }
}
