//! What an AF_XDP socket is configured with.

/// Bytes of a chunk. A frame that does not fit into one comes in several, and is put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkSize {
    /// 2,048, of which the kernel uses 1,792: for an MTU of 1,500.
    #[default]
    Small,
    /// 4,096, of which the kernel uses 3,840.
    Large,
}

impl ChunkSize {
    /// The number.
    pub(super) const fn bytes(self) -> u32 {
        match self {
            Self::Small => 2048,
            Self::Large => 4096,
        }
    }
}

/// How frames get from the driver into the UMEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpCopy {
    /// The card writes them there where its driver can do that, otherwise the kernel copies them.
    #[default]
    WhereNeeded,
    /// The kernel copies them.
    Always,
}

/// How much memory a queue takes, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// Chunks to receive into: as many frames can wait or be held, long ones counted as often as they have pieces.
    pub receive_chunks: u32,
    /// Chunks to send from.
    pub transmit_chunks: u32,
    /// Bytes of a chunk.
    pub chunk_size: ChunkSize,
    /// Whether the kernel copies.
    pub copy: XdpCopy,
}

impl Default for XdpConfig {
    /// 8 MB for receiving, 2 MB for sending.
    fn default() -> Self {
        Self {
            receive_chunks: 4096,
            transmit_chunks: 1024,
            chunk_size: ChunkSize::default(),
            copy: XdpCopy::default(),
        }
    }
}
