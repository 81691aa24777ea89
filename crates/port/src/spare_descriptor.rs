//! A descriptor in reserve, for a listener in a process that may run out of descriptors.

use std::os::fd::AsFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{self, Errno};
use rustix::net::{SocketFlags, accept_with};

use crate::descriptor::Descriptor;

/// A descriptor in reserve.
///
/// A process without a free descriptor cannot accept a connection, and its listener stays readable: a thread
/// that waits for the listener would not sleep again.
#[derive(Debug)]
pub(crate) struct SpareDescriptor(Option<Descriptor>);

impl SpareDescriptor {
    /// Opens the spare descriptor.
    pub(crate) fn new() -> Self {
        Self(eventfd(0, EventfdFlags::CLOEXEC).ok().map(Descriptor::from))
    }

    /// Accepts a connection. If no descriptor is free, uses the spare descriptor to accept the connection and
    /// closes it.
    ///
    /// # Errors
    /// No connection waits, or no descriptor is free.
    pub(crate) fn accept(&mut self, listener: impl AsFd, flags: SocketFlags) -> io::Result<Descriptor> {
        let accepted = accept_with(&listener, flags).map(Descriptor::from);
        if matches!(accepted, Err(Errno::MFILE | Errno::NFILE)) {
            self.0 = None;
            drop(accept_with(&listener, flags).map(Descriptor::from));
            *self = Self::new();
        }
        accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{self, wait};
    use crate::unix_names::{connect_to, named, unix_socket};
    use rustix::net::{SocketType, listen};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::process::Command;

    const CHILD: &str = "NICHROME_TEST_SPARE_DESCRIPTOR";

    /// In a process of its own, which has no descriptor free.
    #[test]
    fn a_connection_that_cannot_be_accepted_does_not_stay() {
        if std::env::var_os(CHILD).is_none() {
            let name = "spare_descriptor::tests::a_connection_that_cannot_be_accepted_does_not_stay";
            let mut child = Command::new(std::env::current_exe().unwrap());
            let status = child.args(["--exact", name]).env(CHILD, "").status().unwrap();
            assert!(status.success());
            return;
        }
        let name = format!("nichrome-test-{}", std::process::id());
        let listener = named(&name, SocketType::SEQPACKET).unwrap();
        listen(&listener, 8).unwrap();
        let mut spare = SpareDescriptor::new();
        let client = unix_socket(SocketType::SEQPACKET).unwrap();
        connect_to(&client, &name).unwrap();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
        let mut taken = Vec::new();
        while let Ok(fd) = eventfd(0, EventfdFlags::CLOEXEC) {
            taken.push(fd);
        }
        let is_readable = || wait([listener.as_fd()], Some(clock::now())).unwrap()[0];
        assert!(is_readable());
        assert_eq!(spare.accept(&listener, SocketFlags::CLOEXEC).err(), Some(Errno::MFILE));
        assert!(!is_readable());
        taken.pop();
        let next = unix_socket(SocketType::SEQPACKET).unwrap();
        connect_to(&next, &name).unwrap();
        taken.pop();
        assert!(spare.accept(&listener, SocketFlags::CLOEXEC).is_ok());
    }
}
