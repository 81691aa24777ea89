//! bpf(2) objects of AF_XDP: the map from queues to sockets, the program that redirects frames to them, and
//! the link that attaches the program to an interface until its descriptor is closed.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io;

use super::mode::XdpMode;
use crate::mapping::{Plain, plain};
use crate::packet_options::last_error;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_DETACH: libc::c_int = 34;

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
/// The program accepts multi-buffer frames.
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

const LICENSE: &CStr = c"MIT";

/// The first fields of `bpf_attr` for BPF_MAP_CREATE.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// For BPF_MAP_UPDATE_ELEM.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapUpdate {
    map_fd: i32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// For BPF_PROG_LOAD.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

/// For BPF_LINK_CREATE.
#[repr(C)]
#[derive(Clone, Copy)]
struct LinkCreate {
    program_fd: i32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// For BPF_LINK_DETACH.
#[repr(C)]
#[derive(Clone, Copy)]
struct LinkDetach {
    link_fd: i32,
}

plain!(MapCreate, MapUpdate, ProgramLoad, LinkCreate, LinkDetach);

/// A map from queues to sockets (BPF_MAP_TYPE_XSKMAP).
#[derive(Debug)]
pub(super) struct SocketMap(OwnedFd);

impl SocketMap {
    /// Creates an empty map for `queues` queues.
    pub(super) fn new(queues: u32) -> io::Result<Self> {
        let create =
            MapCreate { map_type: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries: queues };
        new_descriptor(BPF_MAP_CREATE, &create).map(Self)
    }

    /// Redirects frames of `queue` to `socket` until the socket is closed.
    #[allow(unsafe_code)]
    pub(super) fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd();
        let update = MapUpdate {
            map_fd: self.0.as_raw_fd(),
            padding: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: the kernel reads key_size and value_size bytes, 4 each, where `key` and `value` point.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &update) }.map(drop)
    }
}

/// A BPF instruction (`struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// Destination and source register, 4 bits each.
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Self {
        let registers = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
        Self { code, registers, offset, immediate }
    }
}

/// Redirects a frame to the socket of its receive queue, or passes it to the kernel if there is none: `return
/// bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS)`.
fn program(sockets: &SocketMap) -> [Instruction; 6] {
    const RX_QUEUE_INDEX: i16 = 16;
    const REDIRECT_MAP: i32 = 51;
    const XDP_PASS: i32 = 2;
    [
        // r2 = *(u32 *)(r1 + RX_QUEUE_INDEX)
        Instruction::new(0x61, 2, 1, RX_QUEUE_INDEX, 0),
        // r1 = the map (BPF_PSEUDO_MAP_FD), in two halves
        Instruction::new(0x18, 1, 1, 0, sockets.0.as_raw_fd()),
        Instruction::new(0x00, 0, 0, 0, 0),
        // r3 = XDP_PASS
        Instruction::new(0xB7, 3, 0, 0, XDP_PASS),
        // r0 = bpf_redirect_map(r1, r2, r3)
        Instruction::new(0x85, 0, 0, 0, REDIRECT_MAP),
        // return r0
        Instruction::new(0x95, 0, 0, 0, 0),
    ]
}

/// A loaded program.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

impl Program {
    /// Loads the program for `sockets`.
    pub(super) fn load(sockets: &SocketMap) -> io::Result<Self> {
        let instructions = program(sockets);
        let load = ProgramLoad {
            program_type: BPF_PROG_TYPE_XDP,
            instruction_count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            flags: BPF_F_XDP_HAS_FRAGS,
            name: *b"nichrome\0\0\0\0\0\0\0\0",
            expected_attach_type: BPF_XDP,
            ..ProgramLoad::default()
        };
        new_descriptor(BPF_PROG_LOAD, &load).map(Self)
    }
}

/// The attachment of a program to an interface. Detaches on drop and at the end of the process.
#[derive(Debug)]
pub(super) struct Link(OwnedFd);

impl Link {
    /// Attaches `program` to the interface with this index.
    pub(super) fn attach(program: &Program, interface: u32, mode: XdpMode) -> io::Result<Self> {
        let flags = match mode {
            XdpMode::Native => XDP_FLAGS_DRV_MODE,
            XdpMode::Generic => XDP_FLAGS_SKB_MODE,
        };
        let create = LinkCreate { program_fd: program.0.as_raw_fd(), interface, attach_type: BPF_XDP, flags };
        new_descriptor(BPF_LINK_CREATE, &create).map(Self)
    }
}

impl Drop for Link {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // Closing detaches too, unless a child that was just forked still holds the descriptor.
        let detach = LinkDetach { link_fd: self.0.as_raw_fd() };
        // SAFETY: BPF_LINK_DETACH has no pointers. It fails where the interface has gone.
        let _ = unsafe { bpf(BPF_LINK_DETACH, &detach) };
    }
}

/// Issues a command that returns a new descriptor.
#[allow(unsafe_code)]
fn new_descriptor<T: Plain>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: of the commands used here, only BPF_PROG_LOAD has pointers: to the stated number of
    // instructions and to a string, which both live until the call returns.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: these commands return a new, unowned descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// bpf(2).
///
/// # Safety
/// `attributes` and its pointers are valid for `command`.
#[allow(unsafe_code)]
unsafe fn bpf<T: Plain>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads the stated number of bytes of `attributes`. The caller guarantees the rest.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 {
        return Err(last_error());
    }
    Ok(result as libc::c_int)
}
