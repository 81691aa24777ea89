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

  // Bits of the sums of headers: at most 36 numbers of 16 bits.
  localparam int HEADER_SUM_W = 22;

  // What a chunk is part of: places in `parts_t`, of which one bit is set.
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
  localparam int PARTS = 11;
  typedef logic [PARTS-1:0] parts_t;

  // A protocol number, as far as the walk tells them apart. Extension headers come last.
  typedef enum logic [2:0] {
    NEXT_OTHER,
    NEXT_TCP,
    NEXT_HOP_BY_HOP,
    NEXT_ROUTING,
    NEXT_FRAGMENT,
    NEXT_AH,
    NEXT_DESTINATION
  } next_t;

  // Chunks until a part ends: those behind this one, and `is_[i]` where there are i + 1 with it. So no subtraction waits for the
  // choice of a count, and the end of a part is one bit.
  typedef struct packed {
    logic [6:0] behind;
    logic [4:0] is_;
  } count_t;

  // What the walk asks about a protocol number.
  typedef struct packed {
    logic tcp;
    logic extension;
    logic fragment;
    logic ah;
  } is_next_t;

  // A chunk with all that the walk may ask about it.
  typedef struct packed {
    logic [31:0] data;
    logic vlan;  // EtherTypes in the last two bytes
    logic qinq;
    logic ipv4;
    logic ipv6;
    next_t top;  // the protocol in the first byte
    next_t low;  // the protocol in the third
    is_next_t is_top;
    is_next_t is_low;
    logic offset;  // a fragment header's offset is not 0
    logic has_options;  // a data offset above 5
    count_t ipv4_count;  // behind the first chunk of an IPv4 header
    count_t options_count;
    count_t link_count;  // behind an EtherType
    count_t ah_count;  // behind the first chunk of an extension header
    count_t extension_count;
  } hint_t;

  typedef struct packed {
    logic [31:0] data;
    parts_t parts;
    logic [3:0] index;  // chunks of its part before it
    next_t kind;  // of an extension header
    next_t top;
    logic offset;
    logic tcp_sum;  // counts for the checksum of TCP: the addresses, the header, the options
    logic length4;  // has the length of the IPv4 packet
    logic length6;
  } chunk_t;

  // Where the walk over the headers is.
  typedef struct packed {
    parts_t parts;
    logic [3:0] index;
    logic ipv4_first;  // an IPv4 header begins
    count_t count;
    next_t next;  // the next header of IPv6
    is_next_t is_next;
    logic to_tcp;  // what follows a skipped part: TCP or an extension header
    count_t options;
    logic has_options;
  } walk_t;

  function automatic next_t next_of(logic [7:0] protocol);
    case (protocol)
      PROTOCOL_TCP: next_of = NEXT_TCP;
      PROTOCOL_HOP_BY_HOP: next_of = NEXT_HOP_BY_HOP;
      PROTOCOL_ROUTING: next_of = NEXT_ROUTING;
      PROTOCOL_FRAGMENT: next_of = NEXT_FRAGMENT;
      PROTOCOL_AH: next_of = NEXT_AH;
      PROTOCOL_DESTINATION: next_of = NEXT_DESTINATION;
      default: next_of = NEXT_OTHER;
    endcase
  endfunction

  function automatic logic is_extension(next_t next);
    return next[2:1] != 2'b00;
  endfunction

  function automatic is_next_t is_next_of(logic [7:0] protocol);
    return '{
        tcp: protocol == PROTOCOL_TCP,
        extension: is_extension(next_of(protocol)),
        fragment: protocol == PROTOCOL_FRAGMENT,
        ah: protocol == PROTOCOL_AH
    };
  endfunction

  // Without a carry chain, which is slower than the few gates of so short a number.
  function automatic logic [6:0] minus_one(logic [6:0] number);
    logic [6:0] less;
    logic borrow;
    borrow = 1'b1;
    for (int i = 0; i < 7; i++) begin
      less[i] = number[i] ^ borrow;
      borrow  = borrow && !number[i];
    end
    return less;
  endfunction

  // Chunks of an IPv4 or TCP header behind those before, as a table: it has five at least.
  function automatic logic [6:0] rest_of(logic [3:0] length, int before_);
    logic [6:0] rest;
    rest = '0;
    for (int i = 0; i < 16; i++) if (length == 4'(i)) rest = 7'((i > 5 ? i : 5) - before_);
    return rest;
  endfunction

  function automatic count_t count_of(logic [6:0] count);
    count_t of;
    of.behind = count - 7'd1;
    for (int i = 0; i < 5; i++) of.is_[i] = count == 7'(i + 1);
    return of;
  endfunction

  function automatic count_t count_down(count_t count);
    return '{behind: minus_one(count.behind), is_: {count.behind == 7'd5, count.is_[4:1]}};
  endfunction

  // Counts beyond the parser's reach are cut to 127: the frame is out of reach then, whatever follows.
  function automatic hint_t hint_of(logic [31:0] data);
    hint_t hint;
    logic [7:0] length;
    logic [3:0] nibble;  // of the TCP header: its length
    length = data[23:16];
    nibble = data[31:28];
    hint.data = data;
    hint.vlan = data[15:0] == ETHERTYPE_VLAN;
    hint.qinq = data[15:0] == ETHERTYPE_QINQ;
    hint.ipv4 = data[15:0] == ETHERTYPE_IPV4;
    hint.ipv6 = data[15:0] == ETHERTYPE_IPV6;
    hint.top = next_of(data[31:24]);
    hint.low = next_of(data[15:8]);
    hint.is_top = is_next_of(data[31:24]);
    hint.is_low = is_next_of(data[15:8]);
    hint.offset = data[15:3] != 0;
    hint.has_options = nibble > 4'd5;
    hint.ipv4_count.behind = rest_of(data[27:24], 2);
    hint.ipv4_count.is_ = {data[27:24] == 4'd6, data[27:24] <= 4'd5, 3'b000};
    hint.options_count.behind = rest_of(nibble, 6);
    for (int i = 0; i < 5; i++) hint.options_count.is_[i] = nibble == 4'(i + 6);
    hint.ah_count.behind = length >= 8'd126 ? 7'd126 : length[6:0];
    for (int i = 0; i < 5; i++) hint.ah_count.is_[i] = length == 8'(i);
    hint.link_count.behind = hint.ipv4 ? 7'd4 : hint.ipv6 ? 7'd9 : 7'd0;
    hint.link_count.is_ = {hint.ipv4, 3'b000, !hint.ipv4 && !hint.ipv6};
    hint.extension_count.behind = length >= 8'd63 ? 7'd126 : {length[5:0], 1'b0};
    hint.extension_count.is_ = {length == 8'd2, 1'b0, length == 8'd1, 1'b0, length == 8'd0};
    return hint;
  endfunction

  function automatic walk_t walk_start();
    walk_t walk;
    walk = '0;
    walk.parts[PART_ETHERNET] = 1'b1;
    walk.count = count_of(7'd4);
    return walk;
  endfunction

  // The walk after one more chunk. What a chunk is depends on few bits, for two of them pass in one cycle; what the headers say
  // is found behind.
  function automatic walk_t walk_step(walk_t walk, hint_t hint);
    walk_t after;
    parts_t parts;
    logic last, leaves, link_ends, goes_on;
    parts = walk.parts;
    last = walk.count.is_[0];
    leaves = parts[PART_EXTENSION] || (last && !parts[PART_PAYLOAD] && !parts[PART_OTHER]);
    link_ends = (parts[PART_ETHERNET] && last) || parts[PART_TAG0] || parts[PART_TAG1];
    goes_on = hint.is_top.tcp || (hint.is_top.extension && !(walk.is_next.fragment && hint.offset));

    after = walk;
    after.parts[PART_ETHERNET] = parts[PART_ETHERNET] && !last;
    after.parts[PART_TAG0] = parts[PART_ETHERNET] && last && (hint.vlan || hint.qinq);
    after.parts[PART_TAG1] = parts[PART_TAG0] && hint.vlan;
    after.parts[PART_IPV4] = (link_ends && hint.ipv4) || (parts[PART_IPV4] && !last);
    after.parts[PART_IPV6] = (link_ends && hint.ipv6) || (parts[PART_IPV6] && !last);
    after.parts[PART_EXTENSION] =
        last && ((parts[PART_IPV6] && walk.is_next.extension) || (parts[PART_SKIPPED] && !walk.to_tcp));
    after.parts[PART_SKIPPED] = (parts[PART_EXTENSION] && goes_on) || (parts[PART_SKIPPED] && !last);
    after.parts[PART_TCP] = (parts[PART_TCP] && !last) || (last &&
        (parts[PART_IPV4] || (parts[PART_IPV6] && walk.is_next.tcp) || (parts[PART_SKIPPED] && walk.to_tcp)));
    after.parts[PART_OPTIONS] = (parts[PART_TCP] && last && walk.has_options) || (parts[PART_OPTIONS] && !last);
    after.parts[PART_PAYLOAD] = parts[PART_PAYLOAD] ||
        (last && ((parts[PART_TCP] && !walk.has_options) || parts[PART_OPTIONS]));
    after.parts[PART_OTHER] = parts[PART_OTHER] || (parts[PART_EXTENSION] && !goes_on) ||
        (parts[PART_IPV6] && last && !walk.is_next.tcp && !walk.is_next.extension) ||
        (link_ends && !hint.ipv4 && !hint.ipv6 && !(hint.vlan && !parts[PART_TAG1]) && !(hint.qinq && parts[PART_ETHERNET]));

    after.ipv4_first = link_ends && hint.ipv4;
    after.index = leaves ? 4'd0 : walk.index + 4'd1;
    if (parts[PART_IPV6] && walk.index == 4'd1) begin
      after.next = hint.low;
      after.is_next = hint.is_low;
    end
    if (parts[PART_EXTENSION]) begin
      after.next = hint.top;
      after.is_next = hint.is_top;
      after.to_tcp = hint.is_top.tcp;
    end
    if (parts[PART_TCP] && walk.count.is_[1]) begin
      after.has_options = hint.has_options;
      after.options = hint.options_count;
    end

    // One of these holds, or none where the part has no end.
    after.count = '0;
    if (parts[PART_EXTENSION] && walk.is_next.fragment) after.count = after.count | count_of(7'd1);
    if (parts[PART_EXTENSION] && walk.is_next.ah) after.count = after.count | hint.ah_count;
    if (parts[PART_EXTENSION] && !walk.is_next.fragment && !walk.is_next.ah) begin
      after.count = after.count | hint.extension_count;
    end
    if (walk.ipv4_first) after.count = after.count | hint.ipv4_count;
    if (!last && !parts[PART_EXTENSION] && !walk.ipv4_first) begin
      after.count = after.count | count_down(walk.count);
    end
    if (last && parts[PART_TCP]) after.count = after.count | walk.options;
    if (last && (parts[PART_IPV4] || parts[PART_IPV6] || parts[PART_SKIPPED])) begin
      after.count = after.count | count_of(7'd5);
    end
    if (link_ends) after.count = after.count | hint.link_count;
    return after;
  endfunction

  // Whether the chunk that comes next counts for the checksum of TCP, its payload aside.
  function automatic logic in_tcp_sum(walk_t walk);
    return (walk.parts[PART_IPV4] && (walk.index == 4'd3 || walk.index == 4'd4)) ||
        (walk.parts[PART_IPV6] && walk.index >= 4'd2) || walk.parts[PART_TCP] || walk.parts[PART_OPTIONS];
  endfunction

  // Header fields as they are received, and what the fixed headers say.
  typedef struct packed {
    flow_t flow;
    template_t template_;
    logic [31:0] seq;
    logic [31:0] ack;
    logic [15:0] window;
    logic [8:0] flags;
    logic [15:0] ip_checksum;
    logic [15:0] tcp_checksum;
    logic is_ip;
    logic [16:0] total;  // bytes of the IP packet
    logic [3:0] header_len;  // of IPv4, in chunks
    logic malformed;
    logic found_tcp;
    logic not_tcp;
    logic later_fragment;
    logic fragment;
  } fields_t;

  // What IPv6 extension headers say.
  typedef struct packed {
    logic found;  // there are any
    logic [6:0] transport;  // where TCP begins, in chunks from the IP header
    logic found_tcp;
    logic malformed;
    logic out_of_reach;
    logic later_fragment;
    logic fragment;  // the first of several, or an atomic fragment
    logic opaque;  // a routing header or AH
  } extensions_t;

  // An extension header on its way through `lro_extensions`.
  typedef struct packed {
    logic valid;
    next_t kind;
    next_t top;
    logic offset;
    logic [7:0] length;
    logic [10:0] end_;  // chunks from the frame's start to the header's end; at first, those to its third chunk
  } extension_t;

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
    logic [3:0] nops_step;  // what the latest chunks add to the two, a cycle later
    logic [3:0] behind_step;
    logic [1:0] lane;  // of the timestamps' first byte
    logic [1:0] age;  // chunks since then
    logic [2:0][31:0] chunks;  // those of the timestamps, the latest last
  } options_t;

  // The bytes of a chunk from one lane on, behind the timestamps: NOPs, then the end of the list, then zeros.
  typedef struct packed {
    logic other;
    logic ends;  // there is a zero
    logic [2:0] nops;
  } tail_t;

  // A chunk of options with all that `take_options` may ask about it.
  typedef struct packed {
    logic [31:0] data;
    logic [2:0] lead;  // NOPs that it begins with
    logic begins;  // timestamps follow them
    logic length;  // the first byte is the length of timestamps
    tail_t [3:0] tails;  // from each lane on
  } option_hint_t;

  function automatic tail_t tail_of(logic [31:0] data, logic [2:0] lane);
    tail_t tail;
    logic [3:0] zero, nop, skipped;
    for (int i = 0; i < 4; i++) begin
      zero[i] = data[31-8*i-:8] == 8'd0;
      nop[i] = data[31-8*i-:8] == 8'd1;
      skipped[i] = 3'(i) < lane;
    end
    // NOPs come first, so the last of them says how many there are.
    tail.nops = '0;
    for (int i = 0; i < 4; i++) if (nop[i] && !skipped[i]) tail.nops = 3'(i + 1) - lane;
    tail.ends = (zero & ~skipped) != 0;
    tail.other = ((zero | nop | skipped) != 4'hF) || (zero[0] && !skipped[0] && nop[1]) ||
        (zero[1] && !skipped[1] && nop[2]) || (zero[2] && !skipped[2] && nop[3]);
    return tail;
  endfunction

  function automatic option_hint_t option_hint_of(logic [31:0] data);
    option_hint_t hint;
    logic [3:0] kind;
    logic [3:0] length;
    hint.data = data;
    hint.lead = 3'd4;
    for (int i = 3; i >= 0; i--) if (data[31-8*i-:8] != 8'd1) hint.lead = 3'(i);
    for (int i = 0; i < 4; i++) begin
      kind[i] = data[31-8*i-:8] == 8'd8;
      length[i] = data[31-8*i-:8] == 8'd10;
    end
    case (hint.lead)
      3'd0: hint.begins = kind[0] && length[1];
      3'd1: hint.begins = kind[1] && length[2];
      3'd2: hint.begins = kind[2] && length[3];
      default: hint.begins = kind[3];  // the length is in the next chunk
    endcase
    hint.length = length[0];
    for (int i = 0; i < 4; i++) hint.tails[i] = tail_of(data, 3'(i));
    return hint;
  endfunction

  function automatic options_t take_tail(options_t options, tail_t tail);
    logic ended;
    ended = options.state == OPTIONS_END;
    if (tail.other || (ended && tail.nops != 0)) options.state = OPTIONS_OTHER;
    else options.state = (ended || tail.ends) ? OPTIONS_END : OPTIONS_BEHIND;
    options.behind_step = options.behind_step + 4'(tail.nops);
    return options;
  endfunction

  function automatic options_t begin_timestamps(options_t options, option_hint_t hint);
    options.nops_step = options.nops_step + 4'(hint.lead);
    options.lane = hint.lead[1:0];
    options.age  = 2'd1;
    if (hint.lead != 3'd4) options.state = hint.begins ? OPTIONS_TIMESTAMPS : OPTIONS_OTHER;
    return options;
  endfunction

  function automatic options_t within_timestamps(options_t options, option_hint_t hint);
    options.age = options.age + 1'b1;
    case ({options.age - 2'd1, options.lane})
      {2'd1, 2'd3}: if (!hint.length) options.state = OPTIONS_OTHER;
      {2'd2, 2'd0}: options = take_tail(options, hint.tails[2]);
      {2'd2, 2'd1}: options = take_tail(options, hint.tails[3]);
      {2'd2, 2'd2}: options.state = OPTIONS_BEHIND;
      {2'd3, 2'd3}: options = take_tail(options, hint.tails[1]);
      default: ;
    endcase
    return options;
  endfunction

  // The options after one more chunk of them.
  function automatic options_t take_options(options_t options, option_hint_t hint);
    logic keep;
    keep = (options.state == OPTIONS_NOPS || options.state == OPTIONS_TIMESTAMPS) && options.age != 2'd3;
    if (keep) options.chunks = {options.chunks[1:0], hint.data};
    case (options.state)
      OPTIONS_NOPS: options = begin_timestamps(options, hint);
      OPTIONS_TIMESTAMPS: options = within_timestamps(options, hint);
      OPTIONS_BEHIND, OPTIONS_END: options = take_tail(options, hint.tails[0]);
      default: ;
    endcase
    return options;
  endfunction

  // TSval of options that are timestamps. The chunks before the last are two or three.
  function automatic logic [31:0] ts_value(options_t options);
    logic [95:0] bytes_;
    bytes_ = options.chunks;
    case (options.lane)
      2'd0: ts_value = bytes_[79:48];
      2'd1: ts_value = bytes_[71:40];
      2'd2: ts_value = bytes_[63:32];
      default: ts_value = bytes_[55:24];
    endcase
  endfunction
endpackage

`resetall
