// SPDX-License-Identifier: MIT OR Apache-2.0
// Structures that travel between the blocks.
`resetall
`timescale 1ns / 1ps
`default_nettype none

package lro_types_pkg;
  // A page holds 128 bytes of one frame; the store has at most 2^PAGE_W pages.
  localparam int PAGE_W = 12;
  localparam int PAGE_BYTES = 128;
  localparam int TIME_W = 64;

  typedef logic [PAGE_W-1:0] page_t;

  // Pages and length of a frame in the store.
  typedef struct packed {
    page_t first;
    page_t last;
    logic [15:0] len;
  } extent_t;

  // The flow key.
  typedef struct packed {
    logic v6;
    logic [1:0] tags;
    logic [11:0] vid0;
    logic [11:0] vid1;
    logic [127:0] src;
    logic [127:0] dst;
    logic [31:0] ports;
  } flow_t;

  // Header bits that must be equal in the segments of an aggregate, beside the flow key.
  typedef struct packed {
    logic qinq;
    logic [3:0] pcp0;
    logic [3:0] pcp1;
    logic [7:0] traffic_class;
    logic [19:0] label;  // IPv6: flow label; IPv4: reserved flag and DF
    logic [7:0] ttl;
    logic [3:0] data_offset;
    logic [2:0] reserved;
    logic ece;
    logic [15:0] urgent;
    logic [5:0] ts_at;  // place of TSval in the options, 0 without timestamps
    logic [5:0] ts_nops;  // NOPs behind the timestamps
  } template_t;

  // How decide treats a frame.
  typedef enum logic [2:0] {
    CLASS_PASS,  // forward; the flow is unknown or does not matter
    CLASS_PASS_ALL,  // close every aggregate, then forward: the flow is out of the parser's reach
    CLASS_PASS_FLOW,  // close the flow's aggregate, then forward
    CLASS_DROP,  // wrong checksum
    CLASS_BAD,  // marked by the MAC
    CLASS_STORE  // eligible
  } class_t;

  // Section 5, Figure 5: AGGR and CSUM are `class_` and `reason`.
  typedef struct packed {
    class_t class_;
    logic [4:0] reason;
    extent_t extent;
    logic [TIME_W-1:0] arrival;
    flow_t flow;
    template_t template_;
    logic [31:0] seq;
    logic [31:0] ack;
    logic [15:0] window;
    logic [15:0] ack_window_sum;
    logic [31:0] ts_value;
    logic [15:0] payload_len;
    logic [15:0] payload_sum;
    logic [7:0] payload_at;  // from the start of the frame
    logic [7:0] headers_len;  // IP and TCP
    logic [15:0] ip_checksum;
    logic [15:0] tcp_checksum;
  } lro_struct_t;

  // An aggregate in the store.
  typedef struct packed {
    page_t first;
    page_t tail;  // first page of the last segment
    logic [TIME_W-1:0] arrival;
    logic v6;
    logic [1:0] tags;
    logic [7:0] payload_at;
    logic [7:0] headers_len;
    logic [15:0] frame_len;  // of the first segment, like `first_len`
    logic [15:0] first_len;
    logic [15:0] bytes;
    logic [15:0] mss;
    logic [10:0] count;
    logic [31:0] next_seq;
    logic [31:0] ts_value;
    logic [31:0] ack;
    logic [15:0] window;
    logic [15:0] ack_window_sum;
    logic [16:0] tcp_checksum;  // folded once
    logic [15:0] ip_checksum;
  } aggregate_t;

  // How the egress treats a packet.
  typedef enum logic [1:0] {
    KIND_PASS,
    KIND_SINGLE,
    KIND_AGGREGATE,
    KIND_FREE
  } kind_t;

  // Metadata of a packet, valid with each of its words.
  typedef struct packed {
    logic [TIME_W-1:0] arrival;
    kind_t kind;
    logic [4:0] reason;
    logic [10:0] segments;
    logic [15:0] mss;
    logic [7:0] network;
    logic [7:0] transport;
    logic [7:0] payload;
  } meta_t;

  // Header fields of an aggregate that differ from the first segment's.
  typedef struct packed {
    logic v6;
    logic [15:0] ip_len;
    logic [15:0] ip_checksum;
    logic [31:0] ack;
    logic [15:0] window;
    logic [15:0] tcp_checksum;
  } patch_t;

  // A decision, in the order of the packets.
  typedef struct packed {
    page_t first;
    logic [1:0] tags;
    meta_t meta;
    patch_t patch;
  } order_t;

  // A decision for the closer.
  typedef struct packed {
    kind_t kind;
    logic [4:0] reason;
    aggregate_t aggregate;
    logic bad;  // marked by the MAC: not counted as a packet
  } close_t;

  // A part of a frame that the egress reads, or a frame whose pages it only frees.
  typedef struct packed {
    page_t first;
    page_t last;
    logic free_only;
    logic [6:0] at;  // position of its first byte in the first page
    logic [13:0] words;  // words of the store after the first
    logic single;  // `words` is 0
    logic [4:0] last_lane;
    logic start;  // the first piece of a packet
    logic finish;
    logic aggregate;
    logic [1:0] tags;
    logic v6;
  } piece_t;

  // Position of the payload of a stored frame.
  typedef struct packed {
    extent_t extent;
    logic [7:0] payload_at;
    logic [15:0] payload_len;
  } segment_t;
endpackage

`resetall
