// SPDX-License-Identifier: MIT OR Apache-2.0
// How headers are read: each function takes one chunk of four bytes, the first byte on top.
`resetall
`timescale 1ns / 1ps
`default_nettype none

package lro_parser_pkg;
  import lro_types_pkg::*;

  localparam logic [15:0] ETHERTYPE_IPV4 = 16'h0800;
  localparam logic [15:0] ETHERTYPE_IPV6 = 16'h86DD;
  localparam logic [15:0] ETHERTYPE_VLAN = 16'h8100;
  localparam logic [15:0] ETHERTYPE_QINQ = 16'h88A8;

  localparam logic [7:0] PROTOCOL_HOP_BY_HOP = 8'd0;
  localparam logic [7:0] PROTOCOL_TCP = 8'd6;
  localparam logic [7:0] PROTOCOL_ROUTING = 8'd43;
  localparam logic [7:0] PROTOCOL_FRAGMENT = 8'd44;
  localparam logic [7:0] PROTOCOL_AH = 8'd51;
  localparam logic [7:0] PROTOCOL_DESTINATION = 8'd60;

  // What a chunk is part of.
  typedef enum logic [3:0] {
    PART_ETHERNET,
    PART_TAG0,
    PART_TAG1,
    PART_IPV4,
    PART_IPV6,
    PART_EXTENSION,
    PART_SKIPPED,  // the rest of an extension header
    PART_TCP,
    PART_OPTIONS,
    PART_PAYLOAD,
    PART_OTHER
  } part_t;

  typedef struct packed {
    logic [31:0] data;
    part_t part;
    logic [3:0] index;  // chunks of its part before it
  } chunk_t;

  // Where the walk over the headers is, and what it has found.
  typedef struct packed {
    part_t part;
    logic [3:0] index;
    logic [9:0] left;  // chunks of the part that follow
    part_t behind;  // what follows a skipped part
    logic [9:0] at;  // chunks since the IP header began
    logic [7:0] next_header;
    logic first_extension;
    logic [1:0] tags;
    logic v6;
    logic is_ip;
    logic [16:0] total;  // bytes of the IP packet
    logic [6:0] transport;  // where TCP begins, in chunks from the IP header
    logic found_tcp;
    logic not_tcp;
    logic malformed;
    logic out_of_reach;
    logic later_fragment;
    logic fragment;  // the first of several, or an atomic fragment
    logic opaque;  // a routing header or AH
    logic extended;  // IPv4 options or IPv6 extension headers
  } walk_t;

  localparam walk_t WALK_START = '0;

  // A chunk that begins here ends, with the 8 bytes that hold an extension's length, within the parser's reach.
  function automatic logic extension_in_reach(logic [10:0] at, logic [1:0] tags);
    return at + 11'(tags) <= 11'd58;  // 14 + 4 * (tags + at) + 8 <= 256
  endfunction

  function automatic logic tcp_in_reach(logic [10:0] at, logic [1:0] tags);
    return at + 11'(tags) <= 11'd55;  // 14 + 4 * (tags + at) + 20 <= 256
  endfunction

  function automatic logic is_extension(logic [7:0] protocol);
    return protocol == PROTOCOL_HOP_BY_HOP || protocol == PROTOCOL_ROUTING || protocol == PROTOCOL_FRAGMENT ||
        protocol == PROTOCOL_AH || protocol == PROTOCOL_DESTINATION;
  endfunction

  // Chunks of an extension header.
  function automatic logic [10:0] extension_chunks(logic [7:0] protocol, logic [7:0] length);
    case (protocol)
      PROTOCOL_FRAGMENT: return 11'd2;
      PROTOCOL_AH: return 11'(length) + 11'd2;
      default: return {2'b00, length, 1'b0} + 11'd2;
    endcase
  endfunction

  function automatic walk_t begin_ip(walk_t walk, logic [15:0] ethertype);
    walk.index = '0;
    walk.at = '0;
    case (ethertype)
      ETHERTYPE_IPV4: begin
        walk.part  = PART_IPV4;
        walk.is_ip = 1'b1;
      end
      ETHERTYPE_IPV6: begin
        walk.part  = PART_IPV6;
        walk.is_ip = 1'b1;
        walk.v6 = 1'b1;
      end
      default: begin
        walk.part = PART_OTHER;
        walk.not_tcp = 1'b1;
      end
    endcase
    return walk;
  endfunction

  function automatic walk_t step_ipv4(walk_t walk, logic [31:0] data);
    walk.at = walk.at + 1'b1;
    case (walk.index)
      4'd0: begin
        walk.total = 17'(data[15:0]);
        walk.left = 10'(data[27:24]);
        if (data[31:28] != 4'd4 || data[27:24] < 4'd5) walk.malformed = 1'b1;
        walk.extended = data[27:24] > 4'd5;
        walk.transport = 7'(data[27:24]);
      end
      4'd1: begin
        walk.later_fragment = data[12:0] != 0;
        walk.fragment = data[13];
      end
      4'd2: walk.not_tcp = data[23:16] != PROTOCOL_TCP;
      default: ;
    endcase
    if (walk.index >= 4'd4 && {1'b0, walk.index} + 5'd1 >= walk.left[4:0]) begin
      walk.part  = PART_TCP;
      walk.index = '0;
      walk.found_tcp = 1'b1;
    end else begin
      walk.index = walk.index + 1'b1;
    end
    return walk;
  endfunction

  function automatic walk_t step_ipv6(walk_t walk, logic [31:0] data);
    walk.at = walk.at + 1'b1;
    case (walk.index)
      4'd0: if (data[31:28] != 4'd6) walk.malformed = 1'b1;
      4'd1: begin
        walk.total = 17'(data[31:16]) + 17'd40;
        walk.next_header = data[15:8];
      end
      4'd9: begin
        walk.transport = 7'd10;
        walk.first_extension = 1'b1;
        if (walk.next_header == PROTOCOL_TCP) begin
          walk.part = PART_TCP;
          walk.found_tcp = 1'b1;
        end else if (is_extension(walk.next_header)) begin
          walk.part = PART_EXTENSION;
          walk.extended = 1'b1;
        end else begin
          walk.part = PART_OTHER;
          walk.not_tcp = 1'b1;
        end
      end
      default: ;
    endcase
    walk.index = walk.index == 4'd9 ? '0 : walk.index + 1'b1;
    return walk;
  endfunction

  // Flags do not end the walk, so that what a chunk is depends on few bits: `lro_classify` gives the first of them precedence.
  function automatic walk_t step_extension(walk_t walk, logic [31:0] data);
    logic [10:0] chunks;
    logic [10:0] behind;
    logic later_fragment, in_reach;
    chunks = extension_chunks(walk.next_header, data[23:16]);
    behind = 11'(walk.at) + chunks;
    later_fragment = walk.next_header == PROTOCOL_FRAGMENT && data[15:3] != 0;
    if (!walk.out_of_reach) begin
      if (walk.next_header == PROTOCOL_HOP_BY_HOP && !walk.first_extension) walk.malformed = 1'b1;
      if (walk.next_header == PROTOCOL_AH && data[23:16] == 0) walk.malformed = 1'b1;
      if ({4'b0, behind, 2'b00} > walk.total) walk.malformed = 1'b1;
    end
    if (walk.next_header == PROTOCOL_ROUTING || walk.next_header == PROTOCOL_AH) walk.opaque = 1'b1;
    if (walk.next_header == PROTOCOL_FRAGMENT) begin
      walk.fragment = 1'b1;
      walk.later_fragment = later_fragment;
    end
    walk.first_extension = 1'b0;
    walk.at = walk.at + 1'b1;
    walk.left = 10'(chunks - 11'd1);
    walk.next_header = data[31:24];
    walk.part = PART_SKIPPED;
    in_reach = 1'b1;
    if (is_extension(data[31:24]) && !later_fragment) begin
      walk.behind = PART_EXTENSION;
      in_reach = extension_in_reach(behind, walk.tags);
    end else if (data[31:24] == PROTOCOL_TCP) begin
      walk.found_tcp = 1'b1;
      walk.behind = PART_TCP;
      walk.transport = behind[6:0];
      in_reach = later_fragment || tcp_in_reach(behind, walk.tags);
    end else begin
      walk.not_tcp = 1'b1;
      walk.part = PART_OTHER;
    end
    if (!in_reach) walk.out_of_reach = 1'b1;
    return walk;
  endfunction

  function automatic walk_t step_skipped(walk_t walk);
    walk.at = walk.at + 1'b1;
    if (walk.left == 10'd1) begin
      walk.part  = walk.behind;
      walk.index = '0;
    end
    walk.left = walk.left - 1'b1;
    return walk;
  endfunction

  function automatic walk_t step_tcp(walk_t walk, logic [31:0] data);
    if (walk.index == 4'd3) walk.left = 10'(data[31:28]);
    if (walk.index == 4'd4) begin
      walk.index = '0;
      walk.part  = walk.left <= 10'd5 ? PART_PAYLOAD : PART_OPTIONS;
      walk.left  = walk.left - 10'd5;
    end else begin
      walk.index = walk.index + 1'b1;
    end
    return walk;
  endfunction

  function automatic walk_t step_options(walk_t walk);
    walk.index = walk.index + 1'b1;
    if (walk.left == 10'd1) walk.part = PART_PAYLOAD;
    walk.left = walk.left - 1'b1;
    return walk;
  endfunction

  // The walk after one more chunk.
  function automatic walk_t walk_step(walk_t walk, logic [31:0] data);
    case (walk.part)
      PART_ETHERNET: begin
        if (walk.index != 4'd3) walk.index = walk.index + 1'b1;
        else if (data[15:0] == ETHERTYPE_VLAN || data[15:0] == ETHERTYPE_QINQ) begin
          walk.part = PART_TAG0;
          walk.tags = 2'd1;
        end else walk = begin_ip(walk, data[15:0]);
      end
      PART_TAG0: begin
        if (data[15:0] == ETHERTYPE_VLAN) begin
          walk.part = PART_TAG1;
          walk.tags = 2'd2;
        end else walk = begin_ip(walk, data[15:0]);
      end
      PART_TAG1: walk = begin_ip(walk, data[15:0]);
      PART_IPV4: walk = step_ipv4(walk, data);
      PART_IPV6: walk = step_ipv6(walk, data);
      PART_EXTENSION: walk = step_extension(walk, data);
      PART_SKIPPED: walk = step_skipped(walk);
      PART_TCP: walk = step_tcp(walk, data);
      PART_OPTIONS: walk = step_options(walk);
      default: ;
    endcase
    return walk;
  endfunction

  // Header fields as they are received.
  typedef struct packed {
    flow_t flow;
    template_t template_;
    logic [31:0] seq;
    logic [31:0] ack;
    logic [15:0] window;
    logic [8:0] flags;
    logic [15:0] ip_checksum;
    logic [15:0] tcp_checksum;
  } fields_t;

  function automatic fields_t take_fields(fields_t fields, chunk_t chunk);
    logic [31:0] data;
    data = chunk.data;
    case (chunk.part)
      PART_ETHERNET: if (chunk.index == 4'd3) fields.template_.qinq = data[15:0] == ETHERTYPE_QINQ;
      PART_TAG0: {fields.template_.pcp0, fields.flow.vid0} = data[31:16];
      PART_TAG1: {fields.template_.pcp1, fields.flow.vid1} = data[31:16];
      PART_IPV4:
      case (chunk.index)
        4'd0: fields.template_.traffic_class = data[23:16];
        4'd1: fields.template_.label = {18'b0, data[15:14]};
        4'd2: {fields.template_.ttl, fields.ip_checksum} = {data[31:24], data[15:0]};
        4'd3: fields.flow.src[31:0] = data;
        4'd4: fields.flow.dst[31:0] = data;
        default: ;
      endcase
      PART_IPV6:
      case (chunk.index)
        4'd0: {fields.template_.traffic_class, fields.template_.label} = data[27:0];
        4'd1: fields.template_.ttl = data[7:0];
        4'd2: fields.flow.src[127:96] = data;
        4'd3: fields.flow.src[95:64] = data;
        4'd4: fields.flow.src[63:32] = data;
        4'd5: fields.flow.src[31:0] = data;
        4'd6: fields.flow.dst[127:96] = data;
        4'd7: fields.flow.dst[95:64] = data;
        4'd8: fields.flow.dst[63:32] = data;
        4'd9: fields.flow.dst[31:0] = data;
        default: ;
      endcase
      PART_TCP:
      case (chunk.index)
        4'd0: fields.flow.ports = data;
        4'd1: fields.seq = data;
        4'd2: fields.ack = data;
        4'd3: begin
          fields.template_.data_offset = data[31:28];
          fields.template_.reserved = data[27:25];
          fields.template_.ece = data[22];
          fields.flags = data[24:16];
          fields.window = data[15:0];
        end
        4'd4: {fields.tcp_checksum, fields.template_.urgent} = data;
        default: ;
      endcase
      default: ;
    endcase
    return fields;
  endfunction

  // How far the TCP options are timestamps and padding, in any layout.
  typedef enum logic [2:0] {
    OPTIONS_NOPS,  // nothing yet but NOPs
    OPTIONS_TIMESTAMPS,  // within the timestamps
    OPTIONS_BEHIND,  // NOPs behind them
    OPTIONS_END,  // zeros behind the end of the list
    OPTIONS_OTHER
  } options_state_t;

  typedef struct packed {
    options_state_t state;
    logic [5:0] nops;  // before the timestamps
    logic [5:0] nops_behind;
    logic [1:0] lane;  // of the timestamps' first byte
    logic [1:0] age;  // chunks since then
    logic [2:0][31:0] chunks;  // those of the timestamps, the latest last
  } options_t;

  // The bytes of a chunk from `lane` on, behind the timestamps: NOPs, then the end of the list, then zeros.
  function automatic options_t take_tail(options_t options, logic [31:0] data, logic [2:0] lane);
    logic [3:0] zero, nop, skipped;
    logic [2:0] nops;
    logic ended;
    for (int i = 0; i < 4; i++) begin
      zero[i] = data[31-8*i-:8] == 8'd0;
      nop[i] = data[31-8*i-:8] == 8'd1;
      skipped[i] = 3'(i) < lane;
    end
    // NOPs come first, so the last of them says how many there are.
    ended = options.state == OPTIONS_END;
    nops = '0;
    for (int i = 0; i < 4; i++) if (nop[i] && !skipped[i]) nops = 3'(i + 1) - lane;
    if (((zero | nop | skipped) != 4'hF) || (ended && (nop & ~skipped) != 0) || (zero[0] && !skipped[0] && nop[1]) ||
        (zero[1] && !skipped[1] && nop[2]) || (zero[2] && !skipped[2] && nop[3])) begin
      options.state = OPTIONS_OTHER;
    end else begin
      options.state = (ended || (zero & ~skipped) != 0) ? OPTIONS_END : OPTIONS_BEHIND;
    end
    options.nops_behind = options.nops_behind + 6'(nops);
    return options;
  endfunction

  function automatic options_t begin_timestamps(options_t options, logic [31:0] data);
    logic [2:0] lead;
    logic [15:0] kind_length;
    lead = 3'd4;
    for (int i = 3; i >= 0; i--) if (data[31-8*i-:8] != 8'd1) lead = 3'(i);
    options.nops = options.nops + 6'(lead);
    options.lane = lead[1:0];
    options.age  = 2'd1;
    case (lead)
      3'd0: kind_length = data[31:16];
      3'd1: kind_length = data[23:8];
      3'd2: kind_length = data[15:0];
      default: kind_length = {data[7:0], 8'd10};  // the length is in the next chunk
    endcase
    if (lead != 3'd4) options.state = kind_length == 16'h080A ? OPTIONS_TIMESTAMPS : OPTIONS_OTHER;
    return options;
  endfunction

  function automatic options_t within_timestamps(options_t options, logic [31:0] data);
    options.age = options.age + 1'b1;
    case ({options.age - 2'd1, options.lane})
      {2'd1, 2'd3}: if (data[31:24] != 8'd10) options.state = OPTIONS_OTHER;
      {2'd2, 2'd0}: options = take_tail(options, data, 3'd2);
      {2'd2, 2'd1}: options = take_tail(options, data, 3'd3);
      {2'd2, 2'd2}: options.state = OPTIONS_BEHIND;
      {2'd3, 2'd3}: options = take_tail(options, data, 3'd1);
      default: ;
    endcase
    return options;
  endfunction

  // The options after one more chunk of them.
  function automatic options_t take_options(options_t options, logic [31:0] data);
    logic keep;
    keep = (options.state == OPTIONS_NOPS || options.state == OPTIONS_TIMESTAMPS) && options.age != 2'd3;
    if (keep) options.chunks = {options.chunks[1:0], data};
    case (options.state)
      OPTIONS_NOPS: options = begin_timestamps(options, data);
      OPTIONS_TIMESTAMPS: options = within_timestamps(options, data);
      OPTIONS_BEHIND, OPTIONS_END: options = take_tail(options, data, 3'd0);
      default: ;
    endcase
    return options;
  endfunction

  // TSval of options that are timestamps. The chunks before the last are two or three.
  function automatic logic [31:0] ts_value(options_t options);
    logic [95:0] bytes_;
    bytes_ = options.chunks;
    case (options.lane)
      2'd0: return bytes_[79:48];
      2'd1: return bytes_[71:40];
      2'd2: return bytes_[63:32];
      default: return bytes_[55:24];
    endcase
  endfunction
endpackage

`resetall
