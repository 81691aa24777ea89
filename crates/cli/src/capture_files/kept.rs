//! Written captures that reproduce the interfaces of the input.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nichrome_port::capture::{
    self, LinkType, MAX_INTERFACES, MAX_SNAP_LEN, PacketOptions, WriteError, Writer,
};
use nichrome_wire::Instant;

use super::interface::Interface;

type CaptureWriter = Writer<Box<dyn Write + Send>>;

/// The captures that a command writes. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Outputs(Arc<Mutex<Vec<CaptureWriter>>>);

impl Outputs {
    /// Creates the capture at `path`, written by `application`; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn create(&self, path: &Path, application: &str) -> Result<Kept, WriteError> {
        let writer = capture::create(path, application)?;
        let mut writers = self.writers();
        writers.push(writer);
        Ok(Kept {
            outputs: self.clone(),
            number: writers.len() - 1,
            interfaces: HashMap::new(),
            names: HashMap::new(),
        })
    }

    /// Flushes all written packets, before a wait. Ignores errors: the next write fails as well.
    pub(super) fn flush(&self) {
        for writer in &mut *self.writers() {
            let _ = writer.flush();
        }
    }

    /// Locks the writers. Ignores poisoning: a writer keeps whole blocks.
    fn writers(&self) -> MutexGuard<'_, Vec<CaptureWriter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A capture being written.
pub(crate) struct Kept {
    outputs: Outputs,
    number: usize,
    /// Output interfaces of the current section by input interface.
    interfaces: HashMap<(u32, LinkType), u32>,
    /// Names of the input's interfaces, by their number.
    names: HashMap<u32, Box<str>>,
}

impl Kept {
    /// Records the name of an interface, if it has one, before its first packet is written.
    pub(crate) fn name(&mut self, interface: Interface, name: Option<&str>) {
        if let Some(name) = name {
            self.names.entry(interface.number).or_insert_with(|| name.into());
        }
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
        options: PacketOptions<'_>,
    ) -> Result<(), WriteError> {
        let key = (from.number, from.link_type);
        let writer = &mut self.outputs.writers()[self.number];
        let interface = match self.interfaces.get(&key) {
            Some(interface) => *interface,
            None => {
                if self.interfaces.len() == MAX_INTERFACES {
                    writer.begin_section()?;
                    self.interfaces.clear();
                }
                let unnamed = || format!("interface {}", from.number).into();
                let name = self.names.entry(from.number).or_insert_with(unnamed);
                let interface = writer.add_interface(from.link_type, name, MAX_SNAP_LEN)?;
                self.interfaces.insert(key, interface);
                interface
            }
        };
        writer.write(interface, time, original_len, parts, options)
    }

    /// Writes everything to the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn finish(self) -> Result<(), WriteError> {
        self.outputs.writers()[self.number].flush()
    }
}
