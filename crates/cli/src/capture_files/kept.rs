//! A written capture that reproduces the interfaces of the input.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use nichrome_port::capture::{self, LinkType, MAX_SNAP_LEN, WriteError, Writer};
use nichrome_wire::Instant;

use super::interface::Interface;

/// A capture being written.
pub(crate) struct Kept {
    writer: Writer<Box<dyn Write + Send>>,
    /// Output interfaces by input interface.
    interfaces: HashMap<(u32, LinkType), u32>,
}

impl Kept {
    /// Creates the capture at `path`, written by `application`; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn create(path: &Path, application: &str) -> Result<Self, WriteError> {
        let writer = capture::create(path, application)?;
        Ok(Self { writer, interfaces: HashMap::new() })
    }

    /// Writes a packet, the concatenation of `parts`, on its interface.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(
        &mut self,
        from: Interface,
        time: Instant,
        original_len: Option<u32>,
        parts: [&[u8]; 2],
        comment: Option<&str>,
    ) -> Result<(), WriteError> {
        let key = (from.number, from.link_type);
        let interface = match self.interfaces.get(&key) {
            Some(interface) => *interface,
            None => {
                let name = format!("interface {}", from.number);
                let interface = self.writer.add_interface(from.link_type, &name, MAX_SNAP_LEN)?;
                self.interfaces.insert(key, interface);
                interface
            }
        };
        self.writer.write(interface, time, original_len, parts, comment)
    }

    /// Closes the capture.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn finish(self) -> Result<(), WriteError> {
        self.writer.finish()
    }
}
