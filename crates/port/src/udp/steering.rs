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
}

impl Steering {
    /// How many sockets there are.
    pub const fn slots(self) -> usize {
        1 << self.bits
    }

    /// Has the kernel steer what comes for the group that `socket` is in.
    #[allow(unsafe_code)]
    pub(super) fn attach(self, socket: &OwnedFd) -> io::Result<()> {
        let instruction = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let mut program = [
            instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, self.byte),
            instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 8 - self.bits),
            instruction(libc::BPF_RET | BPF_A, 0),
        ];
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let (fd, len) = (socket.as_raw_fd(), size_of_val(&program) as libc::socklen_t);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
        // SAFETY: setsockopt(2) reads `len` bytes at `program`, and the instructions it points to, as many as it says.
        check(unsafe { libc::setsockopt(fd, level, name, (&raw const program).cast(), len) })
    }
}

/// What is returned is the accumulator.
const BPF_A: u32 = 0x10;
