//! Names of codes for display: `ibv_wc_status_str` and similar functions.

use std::ffi::{CStr, c_char, c_int};

fn name(names: &[&'static CStr], code: c_int) -> *const c_char {
    let found = usize::try_from(code).ok().and_then(|code| names.get(code));
    found.map_or(c"unknown", |name| name).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory bind operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"remote aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    name(&NAMES, status)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const NAMES: [&CStr; 20] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    name(&NAMES, event)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    const NAMES: [&CStr; 8] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    name(&NAMES, node_type)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const NAMES: [&CStr; 6] = [
        c"no state change (NOP)",
        c"PORT_DOWN",
        c"PORT_INIT",
        c"PORT_ARMED",
        c"PORT_ACTIVE",
        c"PORT_ACTIVE_DEFER",
    ];
    name(&NAMES, state)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    const NAMES: [&CStr; 12] = [
        c"RDMA write",
        c"RDMA write with immediate",
        c"send",
        c"send with immediate",
        c"RDMA read",
        c"compare and swap",
        c"fetch and add",
        c"local invalidate",
        c"bind MW",
        c"send with invalidate",
        c"TSO",
        c"driver1",
    ];
    name(&NAMES, opcode)
}
