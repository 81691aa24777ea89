//! Which of several sockets at one address a datagram is for (SO_ATTACH_REUSEPORT_CBPF).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{self, Errno};

use crate::packet_options::check;

/// Datagrams are for the socket whose number stands in the top bits of one of their bytes; those that are shorter, for
/// the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The byte, counted from 0 behind the UDP header.
    pub byte: u32,
    /// How many of its bits, 1 to 6.
    pub bits: u32,
    /// Datagrams that have the number in another byte.
    pub others: Option<OtherKinds>,
    /// Management datagrams, if they are steered by other bytes.
    pub management: Option<ManagementSteering>,
}

/// Datagrams of some kinds, by the low 4 bits of their first byte, that have the number in another byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKinds {
    /// The kinds.
    pub kinds: [u8; 3],
    /// The byte.
    pub byte: u32,
}

/// Management datagrams: those for one queue pair, whose requests are steered by the service that they name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementSteering {
    /// Byte of the 32-bit word whose low 24 bits are the number of the receiving queue pair.
    pub receiver: u32,
    /// The number of the queue pair of management datagrams.
    pub queue_pair: u32,
    /// Byte of the 16-bit attribute.
    pub attribute: u32,
    /// Attributes of requests.
    pub requests: [u16; 2],
    /// Byte of the 32-bit word of a request that names the service: space and port.
    pub service: u32,
    /// Numbers of the port spaces.
    pub spaces: [u16; SPACES],
    /// An attribute that has the slot's number in this byte.
    pub reply: (u16, u32),
    /// Byte of the slot's number for all other attributes.
    pub others: u32,
}

/// Number of port spaces.
pub const SPACES: usize = 4;

/// A port of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePort {
    /// The port's space: an index of [`ManagementSteering::spaces`].
    pub space: usize,
    /// The port.
    pub port: u16,
}

/// Length of a program at most (BPF_MAXINSNS).
const MAX_INSTRUCTIONS: usize = 4096;

impl Steering {
    /// Number of slots.
    pub const fn slots(self) -> usize {
        1 << self.bits
    }

    /// Number of sockets: one for each slot, and one for requests for services that no process has.
    pub const fn sockets(self) -> usize {
        self.slots() + self.management.is_some() as usize
    }

    /// Has the kernel steer what comes for the group that `socket` is in. Requests for the `services` go to these slots.
    ///
    /// # Errors
    /// ENOMEM: the program is longer than the kernel takes.
    #[allow(unsafe_code)]
    pub(super) fn attach(self, socket: &OwnedFd, services: &[(ServicePort, usize)]) -> io::Result<()> {
        let mut program = self.program(services);
        if program.len() > MAX_INSTRUCTIONS {
            return Err(Errno::NOMEM);
        }
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let (fd, len) = (socket.as_raw_fd(), size_of_val(&program) as libc::socklen_t);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
        // SAFETY: setsockopt(2) reads `len` bytes at `program`, and the instructions it points to, as many as it says.
        check(unsafe { libc::setsockopt(fd, level, name, (&raw const program).cast(), len) })
    }

    /// The socket's number as classic BPF.
    fn program(self, services: &[(ServicePort, usize)]) -> Vec<libc::sock_filter> {
        let mut program = Vec::new();
        if let Some(management) = self.management {
            let part = self.management_part(management, services);
            program.extend([
                load_word(management.receiver),
                instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xFF_FFFF),
                jump_if(management.queue_pair, 1, 0),
                instruction(libc::BPF_JMP | libc::BPF_JA, part.len() as u32),
            ]);
            program.extend(part);
        }
        if let Some(OtherKinds { kinds, .. }) = self.others {
            program.extend([load(0), instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xF)]);
            // To the other byte: over the comparisons behind this one, and two instructions.
            let is_other = |(nth, kind): (usize, u8)| jump_if(kind.into(), (kinds.len() - nth + 1) as u8, 0);
            program.extend(kinds.into_iter().enumerate().map(is_other));
        }
        program.push(load(self.byte));
        if let Some(OtherKinds { byte, .. }) = self.others {
            program.extend([instruction(libc::BPF_JMP | libc::BPF_JA, 1), load(byte)]);
        }
        program.extend(self.return_top_bits());
        program
    }

    /// The part of the program for management datagrams.
    fn management_part(
        self,
        management: ManagementSteering,
        services: &[(ServicePort, usize)],
    ) -> Vec<libc::sock_filter> {
        let ManagementSteering { attribute, requests, service, spaces, reply, others, .. } = management;
        let [shift, finish] = self.return_top_bits();
        // Jumps are over as many instructions as stand between.
        let mut part = vec![
            load_half(attribute),
            jump_if(requests[0].into(), 7, 0),
            jump_if(requests[1].into(), 6, 0),
            jump_if(reply.0.into(), 2, 0),
            load(others),
            instruction(libc::BPF_JMP | libc::BPF_JA, 1),
            load(reply.1),
            shift,
            finish,
            load_word(service),
        ];
        for (ServicePort { space, port }, slot) in services {
            let space = spaces.get(*space).copied().unwrap_or_default();
            let name = u32::from(space) << 16 | u32::from(*port);
            part.extend([jump_if(name, 0, 1), return_number(*slot)]);
        }
        part.push(return_number(self.slots()));
        part
    }

    /// Returns the top bits of the byte that was loaded.
    fn return_top_bits(self) -> [libc::sock_filter; 2] {
        let shift = instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 8 - self.bits);
        [shift, instruction(libc::BPF_RET | BPF_A, 0)]
    }
}

fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Jumps over `then` instructions if what was loaded is `value`, otherwise over `otherwise`.
fn jump_if(value: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    libc::sock_filter { code, jt: then, jf: otherwise, k: value }
}

fn load(byte: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, byte)
}

fn load_half(byte: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, byte)
}

fn load_word(byte: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, byte)
}

fn return_number(number: usize) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, number as u32)
}

/// What is returned is the accumulator.
const BPF_A: u32 = 0x10;
