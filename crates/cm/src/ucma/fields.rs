//! Fields of structures in the machine's byte order.

/// A structure as a program wrote it. Missing bytes are zeros.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    /// The `N` bytes at an offset.
    pub(super) fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        let given = self.0.get(at..).unwrap_or_default();
        let len = given.len().min(N);
        bytes[..len].copy_from_slice(&given[..len]);
        bytes
    }

    pub(super) fn u8(self, at: usize) -> u8 {
        u8::from_ne_bytes(self.bytes(at))
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes(at))
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }
}

/// A structure for a program, zero until its fields are written.
pub(super) struct Structure(pub(super) Vec<u8>);

impl Structure {
    pub(super) fn new(size: usize) -> Self {
        Self(vec![0; size])
    }

    /// Writes bytes at an offset; bytes outside are dropped.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        let room = self.0.get_mut(at..).unwrap_or_default();
        let len = room.len().min(bytes.len());
        room[..len].copy_from_slice(&bytes[..len]);
    }

    pub(super) fn u8(&mut self, at: usize, value: u8) {
        self.put(at, &value.to_ne_bytes());
    }

    pub(super) fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_ne_bytes());
    }

    pub(super) fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_ne_bytes());
    }
}
