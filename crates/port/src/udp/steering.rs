//! Steering of datagrams among the sockets of one address (SO_ATTACH_REUSEPORT_CBPF).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{self, Errno};

use crate::packet_options::check;

/// Selects the socket whose slot number is in the top bits of one byte of the datagram; datagrams that are
/// too short go to slot 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Offset of the byte behind the UDP header.
    pub byte: u32,
    /// Number of its top bits that hold the slot number, 1 to 6.
    pub bits: u32,
    /// Datagrams with the slot number in another byte.
    pub others: Option<OtherKinds>,
    /// Management datagrams, if they are steered differently.
    pub management: Option<ManagementSteering>,
}

/// Datagram kinds, by the low 4 bits of the first byte, with the slot number in another byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKinds {
    /// The kinds.
    pub kinds: [u8; 3],
    /// Offset of the byte with the slot number.
    pub byte: u32,
}

/// Management datagrams, which are addressed to one queue pair. Requests are steered by their service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementSteering {
    /// Offset of the 32-bit word whose low 24 bits are the destination queue pair number.
    pub receiver: u32,
    /// The queue pair number of management datagrams.
    pub queue_pair: u32,
    /// Offset of the 16-bit attribute ID.
    pub attribute: u32,
    /// Attribute IDs of requests.
    pub requests: [u16; 2],
    /// Offset of the 32-bit word of a request with the service: port space and port.
    pub service: u32,
    /// Values of the port spaces.
    pub spaces: [u16; SPACES],
    /// The attribute ID of replies, and the offset of the byte with their slot number.
    pub reply: (u16, u32),
    /// Offset of the byte with the slot number for all other attribute IDs.
    pub others: u32,
}

/// Number of port spaces.
pub const SPACES: usize = 4;

/// A service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePort {
    /// Port space: an index into [`ManagementSteering::spaces`].
    pub space: usize,
    /// The port number.
    pub port: u16,
}

/// Maximum length of a program, in instructions (BPF_MAXINSNS).
const MAX_INSTRUCTIONS: usize = 4096;

impl Steering {
    /// Returns the number of slots.
    pub const fn slots(self) -> usize {
        1 << self.bits
    }

    /// Returns the number of sockets: one per slot, and one for requests to ports without a listener.
    pub const fn sockets(self) -> usize {
        self.slots() + self.management.is_some() as usize
    }

    /// Attaches the steering program to the group of `socket`. Requests for the `services` go to the given
    /// slots.
    ///
    /// # Errors
    /// ENOMEM: the program exceeds the kernel's limit.
    #[allow(unsafe_code)]
    pub(super) fn attach(self, socket: &OwnedFd, services: &[(ServicePort, usize)]) -> io::Result<()> {
        let mut program = self.program(services);
        if program.len() > MAX_INSTRUCTIONS {
            return Err(Errno::NOMEM);
        }
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let (fd, len) = (socket.as_raw_fd(), size_of_val(&program) as libc::socklen_t);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
        // SAFETY: setsockopt(2) reads `len` bytes at `program`, and the number of instructions that it
        // states.
        check(unsafe { libc::setsockopt(fd, level, name, (&raw const program).cast(), len) })
    }

    /// Builds the classic BPF program that returns the socket's index.
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
            // Jumps over the remaining comparisons and two instructions.
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

    /// Builds the part of the program for management datagrams.
    fn management_part(
        self,
        management: ManagementSteering,
        services: &[(ServicePort, usize)],
    ) -> Vec<libc::sock_filter> {
        let ManagementSteering { attribute, requests, service, spaces, reply, others, .. } = management;
        let [shift, finish] = self.return_top_bits();
        // A jump's operand is the number of instructions to skip.
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
        let name = |ServicePort { space, port }: ServicePort| {
            let space = spaces.get(space).copied().unwrap_or_default();
            u32::from(space) << 16 | u32::from(port)
        };
        let mut services = services.to_vec();
        services.sort_unstable_by_key(|(_, slot)| *slot);
        for of_slot in services.chunk_by(|(_, one), (_, other)| one == other) {
            // One instruction a port: before Linux 6.8 a program has 20 KB at most (net.core.optmem_max).
            for ports in of_slot.chunks(usize::from(u8::MAX)) {
                let comparisons = ports.iter().zip((1..=ports.len()).rev());
                part.extend(
                    comparisons.map(|((port, _), to_return)| jump_if(name(*port), to_return as u8, 0)),
                );
                let skip = instruction(libc::BPF_JMP | libc::BPF_JA, 1);
                part.extend([skip, return_number(ports[0].1)]);
            }
        }
        part.push(return_number(self.slots()));
        part
    }

    /// Returns the top bits of the loaded byte.
    fn return_top_bits(self) -> [libc::sock_filter; 2] {
        let shift = instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 8 - self.bits);
        [shift, instruction(libc::BPF_RET | BPF_A, 0)]
    }
}

fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Skips `then` instructions if the loaded value is `value`, else `otherwise`.
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

/// BPF_RET of the accumulator.
const BPF_A: u32 = 0x10;
