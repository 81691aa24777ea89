//! Which of several sockets at one address a datagram is for (SO_ATTACH_REUSEPORT_CBPF).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io;

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
}

/// Datagrams of some kinds, by the low 4 bits of their first byte, that have the number in another byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKinds {
    /// The kinds.
    pub kinds: [u8; 3],
    /// The byte.
    pub byte: u32,
}

impl Steering {
    /// How many sockets there are.
    pub const fn slots(self) -> usize {
        1 << self.bits
    }

    /// Has the kernel steer what comes for the group that `socket` is in.
    #[allow(unsafe_code)]
    pub(super) fn attach(self, socket: &OwnedFd) -> io::Result<()> {
        let mut program = self.program();
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let (fd, len) = (socket.as_raw_fd(), size_of_val(&program) as libc::socklen_t);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
        // SAFETY: setsockopt(2) reads `len` bytes at `program`, and the instructions it points to, as many as it says.
        check(unsafe { libc::setsockopt(fd, level, name, (&raw const program).cast(), len) })
    }

    /// The socket's number as classic BPF.
    fn program(self) -> Vec<libc::sock_filter> {
        let jump = |code: u32, k: u32, jt: u8| libc::sock_filter { code: code as u16, jt, jf: 0, k };
        let instruction = |code, k| jump(code, k, 0);
        let load = |byte| instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, byte);
        let mut program = Vec::new();
        if let Some(OtherKinds { kinds, .. }) = self.others {
            program.extend([load(0), instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xF)]);
            // To the other byte: over the comparisons behind this one, and two instructions.
            let is_other = |(nth, kind): (usize, u8)| {
                jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, kind.into(), (kinds.len() - nth + 1) as u8)
            };
            program.extend(kinds.into_iter().enumerate().map(is_other));
        }
        program.push(load(self.byte));
        if let Some(OtherKinds { byte, .. }) = self.others {
            program.extend([instruction(libc::BPF_JMP | libc::BPF_JA, 1), load(byte)]);
        }
        program.push(instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 8 - self.bits));
        program.push(instruction(libc::BPF_RET | BPF_A, 0));
        program
    }
}

/// What is returned is the accumulator.
const BPF_A: u32 = 0x10;
