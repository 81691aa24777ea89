//! The constants that RTL and engine share, as a SystemVerilog package and as the README's table of
//! registers.

use std::fmt::Write;

use nichrome_lro::{DropReason, FlushReason, PassReason, Reason, netfpga};

/// First counter of the flush, pass and drop reasons; the last counter is of frames that the MAC marked as
/// bad.
pub const COUNTER_FLUSH: usize = 0;
/// See [`COUNTER_FLUSH`].
pub const COUNTER_PASS: usize = 24;
/// See [`COUNTER_FLUSH`].
pub const COUNTER_DROP: usize = 56;
/// See [`COUNTER_FLUSH`].
pub const COUNTER_BAD_FRAMES: usize = 63;

/// The totals, in the order of their registers.
pub const TOTALS: [&str; 8] = [
    "packets_in",
    "bytes_in",
    "payload_bytes_in",
    "packets_out",
    "bytes_out",
    "payload_bytes_out",
    "aggregates",
    "segments_aggregated",
];

/// A register.
pub struct Register {
    /// Lower case, words joined by `_`.
    pub name: &'static str,
    /// Address in bytes.
    pub address: u32,
    /// `ro` or `rw`.
    pub access: &'static str,
    /// A description of its content.
    pub holds: &'static str,
}

const fn register(name: &'static str, address: u32, access: &'static str, holds: &'static str) -> Register {
    Register { name, address, access, holds }
}

/// Every register but the counters, each of 32 bits.
pub const REGISTERS: [Register; 11] = [
    register("id", 0x000, "ro", "0x4E4C524F, \"NLRO\""),
    register("version", 0x004, "ro", "1"),
    register("parameters", 0x008, "ro", "bits 31–24 FLOWS, bits 15–0 DATA_W"),
    register("pages", 0x00C, "ro", "pages of 128 B in the store"),
    register(
        "control",
        0x010,
        "rw",
        "bit 0 takes frames; bit 1 passes wrong checksums instead of dropping; bit 2 closes every aggregate when no frame is on its way in",
    ),
    register(
        "status",
        0x014,
        "ro",
        "bit 0 nothing is stored or on its way; bit 1 the page list is made; bits 12–8 aggregates stored",
    ),
    register("timer_ns", 0x018, "rw", "an aggregate is closed so many ns after its first segment arrived"),
    register("max_bytes", 0x01C, "rw", "bytes of an aggregate's IP packet, 576 to 65,535"),
    register("max_segments", 0x020, "rw", "segments of an aggregate, 2 to 1,023"),
    register("totals", 0x100, "ro", "eight counters of 64 bits, low half first"),
    register("reasons", 0x200, "ro", "64 counters of 64 bits, low half first; 0 after reset"),
];

/// The text of `rtl/lro_pkg.sv`.
pub fn system_verilog() -> String {
    let mut text = String::from(
        "// SPDX-License-Identifier: MIT OR Apache-2.0\n\
         // Constants that the module shares with the engine. The test `package` of hw/lro/cosim writes them.\n\
         `resetall\n`timescale 1ns / 1ps\n`default_nettype none\n\npackage lro_pkg;\n",
    );
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "  {arguments}");
    };
    line(format_args!("localparam logic [31:0] ID = 32'h4E4C524F;"));
    line(format_args!("localparam logic [31:0] VERSION = 32'd1;\n"));
    line(format_args!("// Bytes of padding behind a packet."));
    line(format_args!("localparam int MAX_PADDING = {};\n", netfpga::MAX_PADDING));
    line(format_args!("localparam int DEFAULT_TIMER_NS = 50000;"));
    line(format_args!("localparam int DEFAULT_MAX_BYTES = 49152;"));
    line(format_args!("localparam int DEFAULT_MAX_SEGMENTS = 128;\n"));
    for Register { name, address, .. } in &REGISTERS {
        line(format_args!("localparam logic [11:0] REGISTER_{} = 12'h{address:03X};", name.to_uppercase()));
    }
    line(format_args!("localparam int TOTALS = {};", TOTALS.len()));
    for (index, name) in TOTALS.iter().enumerate() {
        line(format_args!("localparam int TOTAL_{} = {index};", name.to_uppercase()));
    }
    line(format_args!("localparam logic [5:0] COUNTER_FLUSH = 6'd{COUNTER_FLUSH};"));
    line(format_args!("localparam logic [5:0] COUNTER_PASS = 6'd{COUNTER_PASS};"));
    line(format_args!("localparam logic [5:0] COUNTER_DROP = 6'd{COUNTER_DROP};"));
    line(format_args!("localparam logic [5:0] COUNTER_BAD_FRAMES = 6'd{COUNTER_BAD_FRAMES};\n"));
    line(format_args!("// The reasons of crates/lro/src/reason.rs."));
    line(format_args!("{}", enumeration::<FlushReason>("flush")));
    line(format_args!("{}", enumeration::<PassReason>("pass")));
    line(format_args!("{}", enumeration::<DropReason>("drop")));
    text + "endpackage\n\n`resetall\n"
}

fn enumeration<R: Reason>(kind: &str) -> String {
    let prefix = kind.to_uppercase();
    let names: Vec<String> = R::ALL
        .iter()
        .map(|reason| format!("    {prefix}_{} = 5'd{}", reason.name().to_uppercase(), reason.position()))
        .collect();
    format!("typedef enum logic [4:0] {{\n{}\n  }} {kind}_reason_t;\n", names.join(",\n"))
}

/// The README's table of registers.
pub fn register_table() -> String {
    let mut text = String::from("| address | register | | holds |\n|---|---|---|---|\n");
    for Register { name, address, access, holds } in &REGISTERS {
        let _ = writeln!(text, "| 0x{address:03X} | `{name}` | {access} | {holds} |");
    }
    for (index, name) in TOTALS.iter().enumerate() {
        let _ = writeln!(text, "| 0x{:03X} | `totals.{name}` | ro | |", 0x100 + 8 * index);
    }
    reasons::<FlushReason>(&mut text, "flushes", COUNTER_FLUSH);
    reasons::<PassReason>(&mut text, "passes", COUNTER_PASS);
    reasons::<DropReason>(&mut text, "drops", COUNTER_DROP);
    let _ = writeln!(
        text,
        "| 0x{:03X} | `bad_frames` | ro | frames that the MAC marked |",
        0x200 + 8 * COUNTER_BAD_FRAMES
    );
    text
}

fn reasons<R: Reason>(text: &mut String, kind: &str, first: usize) {
    for reason in R::ALL {
        let address = 0x200 + 8 * (first + reason.position());
        let _ = writeln!(text, "| 0x{address:03X} | `{kind}.{}` | ro | |", reason.name());
    }
}
