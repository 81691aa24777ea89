// SPDX-License-Identifier: MIT OR Apache-2.0
// Constants that the module shares with the engine. The test `package` of hw/lro/cosim writes them.
`resetall
`timescale 1ns / 1ps
`default_nettype none

package lro_pkg;
  localparam logic [31:0] ID = 32'h4E4C524F;
  localparam logic [31:0] VERSION = 32'd1;

  // Bytes of padding behind a packet.
  localparam int MAX_PADDING = 8;

  localparam int DEFAULT_TIMER_NS = 50000;
  localparam int DEFAULT_MAX_BYTES = 49152;
  localparam int DEFAULT_MAX_SEGMENTS = 128;

  localparam logic [11:0] REGISTER_ID = 12'h000;
  localparam logic [11:0] REGISTER_VERSION = 12'h004;
  localparam logic [11:0] REGISTER_PARAMETERS = 12'h008;
  localparam logic [11:0] REGISTER_PAGES = 12'h00C;
  localparam logic [11:0] REGISTER_CONTROL = 12'h010;
  localparam logic [11:0] REGISTER_STATUS = 12'h014;
  localparam logic [11:0] REGISTER_TIMER_NS = 12'h018;
  localparam logic [11:0] REGISTER_MAX_BYTES = 12'h01C;
  localparam logic [11:0] REGISTER_MAX_SEGMENTS = 12'h020;
  localparam logic [11:0] REGISTER_TOTALS = 12'h100;
  localparam logic [11:0] REGISTER_REASONS = 12'h200;
  localparam int TOTALS = 8;
  localparam int TOTAL_PACKETS_IN = 0;
  localparam int TOTAL_BYTES_IN = 1;
  localparam int TOTAL_PAYLOAD_BYTES_IN = 2;
  localparam int TOTAL_PACKETS_OUT = 3;
  localparam int TOTAL_BYTES_OUT = 4;
  localparam int TOTAL_PAYLOAD_BYTES_OUT = 5;
  localparam int TOTAL_AGGREGATES = 6;
  localparam int TOTAL_SEGMENTS_AGGREGATED = 7;
  localparam logic [5:0] COUNTER_FLUSH = 6'd0;
  localparam logic [5:0] COUNTER_PASS = 6'd24;
  localparam logic [5:0] COUNTER_DROP = 6'd56;
  localparam logic [5:0] COUNTER_BAD_FRAMES = 6'd63;

  // The reasons of crates/lro/src/reason.rs.
  typedef enum logic [4:0] {
    FLUSH_MAX_LENGTH = 5'd0,
    FLUSH_MAX_SEGMENTS = 5'd1,
    FLUSH_PSH = 5'd2,
    FLUSH_FIN = 5'd3,
    FLUSH_SHORT_SEGMENT = 5'd4,
    FLUSH_LONG_SEGMENT = 5'd5,
    FLUSH_UNEQUAL_FIELD = 5'd6,
    FLUSH_OUT_OF_ORDER = 5'd7,
    FLUSH_BARRIER = 5'd8,
    FLUSH_FLOW_MISMATCH = 5'd9,
    FLUSH_TIMEOUT = 5'd10,
    FLUSH_SPARSE = 5'd11,
    FLUSH_REORDER_TIMEOUT = 5'd12,
    FLUSH_REORDER_FULL = 5'd13,
    FLUSH_END_OF_BATCH = 5'd14,
    FLUSH_EVICTED = 5'd15,
    FLUSH_DRAIN = 5'd16
  } flush_reason_t;

  typedef enum logic [4:0] {
    PASS_NOT_TCP = 5'd0,
    PASS_MALFORMED = 5'd1,
    PASS_FRAGMENT = 5'd2,
    PASS_IP_OPTIONS = 5'd3,
    PASS_TRAILER = 5'd4,
    PASS_BAD_CHECKSUM = 5'd5,
    PASS_UNUSUAL_CHECKSUM = 5'd6,
    PASS_SYN = 5'd7,
    PASS_FIN = 5'd8,
    PASS_RST = 5'd9,
    PASS_URG = 5'd10,
    PASS_PSH = 5'd11,
    PASS_CONGESTION_FLAGS = 5'd12,
    PASS_UNUSUAL_FLAGS = 5'd13,
    PASS_PURE_ACK = 5'd14,
    PASS_EMPTY_DATAGRAM = 5'd15,
    PASS_NO_CHECKSUM = 5'd16,
    PASS_TCP_OPTIONS = 5'd17,
    PASS_OUT_OF_ORDER = 5'd18,
    PASS_OLD = 5'd19,
    PASS_FAR_AHEAD = 5'd20,
    PASS_POOL_EMPTY = 5'd21,
    PASS_TABLE_FULL = 5'd22
  } pass_reason_t;

  typedef enum logic [4:0] {
    DROP_IP_CHECKSUM = 5'd0,
    DROP_TCP_CHECKSUM = 5'd1,
    DROP_UDP_CHECKSUM = 5'd2,
    DROP_DUPLICATE = 5'd3
  } drop_reason_t;

endpackage

`resetall
