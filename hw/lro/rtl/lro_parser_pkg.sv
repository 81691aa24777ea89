// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions that read headers, one chunk of four bytes at a time; the first byte is in the top bits.
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

  // Width of the header sums: at most 36 numbers of 16 bits.
  localparam int HEADER_SUM_W = 22;

  // The part of the frame that a chunk belongs to: bit positions in the one-hot `parts_t`. Behind a header
  // that the walk does not know, no bit is set.
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
    PART_PAYLOAD
  } part_t;
  localparam int PARTS = 10;
  typedef logic [PARTS-1:0] parts_t;

  // Protocol numbers that the walk distinguishes. Extension headers come last, for `is_extension`.
  typedef enum logic [2:0] {
    NEXT_OTHER,
    NEXT_TCP,
    NEXT_HOP_BY_HOP,
    NEXT_ROUTING,
    NEXT_FRAGMENT,
    NEXT_AH,
    NEXT_DESTINATION
  } next_t;

  // Number of chunks of the part after this one, one-hot, so that the end of the part is one bit and counting
  // down is a shift. Bit i of `left` (0 to 15) stands for i chunks and 16 more for each of `laps`; bit 16 for
  // 16 chunks for each of `laps`, which are not 0.
  localparam int LAP = 16;
  typedef struct packed {
    logic [LAP:0] left;
    logic [2:0] laps;
    logic last_lap;  // `laps` is 0
  } count_t;

  // A protocol number, decoded for the walk.
  typedef struct packed {
    logic tcp;
    logic fragment;
    logic ah;
    logic extension;  // any other extension header
  } is_next_t;

  // A chunk, decoded in every way that the walk may need.
  typedef struct packed {
    logic [31:0] data;
    logic vlan;  // EtherTypes in the last two bytes
    logic tag;  // VLAN or QinQ
    logic ipv4;
    logic ipv6;
    next_t top;  // the protocol in the first byte
    next_t low;  // the protocol in the third byte
    is_next_t is_top;
    is_next_t is_low;
    logic offset;  // a fragment header's offset is not 0
    logic goes_on;  // if this is an extension header, the walk knows the header behind it
    logic fragment_goes_on;  // the same for a fragment header: behind a later fragment's, it knows only TCP
    logic has_options;  // a data offset above 5
    // Number of chunks of a header after its first one, one-hot.
    logic [13:3] ipv4_left;
    count_t ah_count;
    count_t extension_count;  // only even bits of `left`
    logic [9:0] options_left;  // of TCP options
  } hint_t;

  typedef struct packed {
    logic [31:0] data;
    parts_t parts;
    logic [3:0] index;  // chunks of its part before it
    next_t kind;  // of an extension header
    next_t top;
    logic offset;
    logic tcp_sum;  // counts towards the TCP checksum: the addresses, the header, the options
    logic length4;  // has the length field of the IPv4 packet
    logic length6;
  } chunk_t;

  // State of the walk over the headers. The next part is known before this one ends, and the first chunk of a
  // header has a bit of its own: this shortens a step, of which each cycle makes two or more.
  typedef struct packed {
    parts_t parts;
    logic [3:0] index;
    logic link_ends;  // the chunk ends with an EtherType
    logic ipv4_first;  // an IPv4 header begins
    logic ipv6_first;
    logic ipv6_second;
    is_next_t begins;  // an extension header
    count_t count;
    next_t next;  // the next header of IPv6
    is_next_t to;  // the header behind the part
    logic to_options;
    logic to_payload;  // behind the TCP header and its options
    logic [9:0] options_left;  // with the last chunk of a TCP header
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
    is_next_t is_next;
    is_next.tcp = protocol == PROTOCOL_TCP;
    is_next.fragment = protocol == PROTOCOL_FRAGMENT;
    is_next.ah = protocol == PROTOCOL_AH;
    is_next.extension = is_extension(next_of(protocol)) && !is_next.fragment && !is_next.ah;
    return is_next;
  endfunction

  // Laps saturate at 7: the frame is then beyond the parser's reach, whatever follows.
  function automatic hint_t hint_of(logic [31:0] data);
    hint_t hint;
    logic [7:0] length;
    logic [3:0] nibble;  // the length field of a TCP header
    length = data[23:16];
    nibble = data[31:28];
    hint.data = data;
    hint.vlan = data[15:0] == ETHERTYPE_VLAN;
    hint.tag = data[15:0] == ETHERTYPE_VLAN || data[15:0] == ETHERTYPE_QINQ;
    hint.ipv4 = data[15:0] == ETHERTYPE_IPV4;
    hint.ipv6 = data[15:0] == ETHERTYPE_IPV6;
    hint.top = next_of(data[31:24]);
    hint.low = next_of(data[15:8]);
    hint.is_top = is_next_of(data[31:24]);
    hint.is_low = is_next_of(data[15:8]);
    hint.offset = data[15:3] != 0;
    hint.goes_on = hint.top != NEXT_OTHER;
    hint.fragment_goes_on = hint.is_top.tcp || (hint.goes_on && !hint.offset);
    hint.has_options = nibble > 4'd5;
    hint.ipv4_left[3] = data[27:24] <= 4'd5;
    for (int i = 4; i < 14; i++) hint.ipv4_left[i] = data[27:24] == 4'(i + 2);
    for (int i = 0; i < 10; i++) hint.options_left[i] = nibble == 4'(i + 6);

    for (int i = 0; i < LAP; i++) hint.ah_count.left[i] = length[3:0] == 4'(i) && (i > 0 || length == 0);
    hint.ah_count.left[LAP] = length[3:0] == 0 && length != 0;
    hint.ah_count.laps = length[7] ? 3'd7 : length[6:4];
    hint.ah_count.last_lap = length[7:4] == 0;

    hint.extension_count.left = '0;
    for (int i = 0; i < LAP / 2; i++) hint.extension_count.left[2*i] = length[2:0] == 3'(i) && (i > 0 || length == 0);
    hint.extension_count.left[LAP] = length[2:0] == 0 && length != 0;
    hint.extension_count.laps = length[7:6] != 0 ? 3'd7 : length[5:3];
    hint.extension_count.last_lap = length[7:3] == 0;
    return hint;
  endfunction

  function automatic walk_t walk_start();
    walk_t walk;
    walk = '0;
    walk.parts[PART_ETHERNET] = 1'b1;
    walk.count.left[3] = 1'b1;
    walk.count.last_lap = 1'b1;
    return walk;
  endfunction

  // Returns the count for the next chunk of the same part.
  function automatic count_t count_down(count_t count);
    count_t after;
    after.left = count.left >> 1;
    after.left[0] = count.left[1] && count.last_lap;
    after.left[LAP] = count.left[1] && !count.last_lap;
    after.laps = count.left[LAP] ? count.laps - 3'd1 : count.laps;
    after.last_lap = count.last_lap || (count.left[LAP] && count.laps == 3'd1);
    return after;
  endfunction

  // Returns the state of the walk after one more chunk. It depends on few bits, because two or more chunks
  // pass in one cycle; later stages read the fields of the headers.
  function automatic walk_t walk_step(walk_t walk, hint_t hint);
    walk_t after;
    parts_t parts;
    logic last, later_fragment, has_data_offset;
    parts = walk.parts;
    last = walk.count.left[0];
    later_fragment = walk.begins.fragment && hint.offset;
    has_data_offset = parts[PART_TCP] && walk.count.left[1];

    after = walk;
    after.parts[PART_ETHERNET] = parts[PART_ETHERNET] && !last;
    after.parts[PART_TAG0] = parts[PART_ETHERNET] && last && hint.tag;
    after.parts[PART_TAG1] = parts[PART_TAG0] && hint.vlan;
    after.parts[PART_IPV4] = (walk.link_ends && hint.ipv4) || (parts[PART_IPV4] && !last);
    after.parts[PART_IPV6] = (walk.link_ends && hint.ipv6) || (parts[PART_IPV6] && !last);
    after.parts[PART_EXTENSION] = last && (walk.to.fragment || walk.to.ah || walk.to.extension);
    after.parts[PART_SKIPPED] = (parts[PART_SKIPPED] && !last) ||
        (parts[PART_EXTENSION] && (walk.begins.fragment ? hint.fragment_goes_on : hint.goes_on));
    after.parts[PART_TCP] = last ? walk.to.tcp : parts[PART_TCP];
    after.parts[PART_OPTIONS] = last ? walk.to_options : parts[PART_OPTIONS];
    after.parts[PART_PAYLOAD] = parts[PART_PAYLOAD] || (last && walk.to_payload && !walk.to_options);

    after.index = (last || walk.link_ends) ? 4'd0 : walk.index + 4'd1;
    after.link_ends = (parts[PART_ETHERNET] && (walk.count.left[1] || (last && hint.tag))) || (parts[PART_TAG0] && hint.vlan);
    after.ipv4_first = walk.link_ends && hint.ipv4;
    after.ipv6_first = walk.link_ends && hint.ipv6;
    after.ipv6_second = walk.ipv6_first;
    after.begins = last ? walk.to : '0;
    after.begins.tcp = 1'b0;

    if (walk.ipv6_second) after.next = hint.low;
    if (parts[PART_EXTENSION]) after.next = hint.top;
    // `to` is empty from the end of a part until a header names the next one.
    if (last) after.to = '0;
    if (walk.link_ends && hint.ipv4) after.to.tcp = 1'b1;
    if (walk.ipv6_second) after.to = after.to | hint.is_low;
    if (parts[PART_EXTENSION]) begin
      after.to.tcp = after.to.tcp || hint.is_top.tcp;
      if (!later_fragment) after.to = after.to | hint.is_top;
    end
    after.to_options = has_data_offset && hint.has_options;
    after.to_payload = walk.to_payload || has_data_offset;
    after.options_left = has_data_offset ? hint.options_left : '0;

    // `left` is 0 in each of the cases that set it here.
    after.count = count_down(walk.count);
    if (walk.link_ends && hint.ipv6) after.count.left[9] = 1'b1;
    if (walk.ipv4_first) after.count.left[13:3] = after.count.left[13:3] | hint.ipv4_left;
    if (last && walk.to.tcp) after.count.left[4] = 1'b1;
    after.count.left[9:0] = after.count.left[9:0] | walk.options_left;
    if (walk.begins.fragment) after.count.left[0] = 1'b1;
    if (walk.begins.ah) begin
      after.count.left = after.count.left | hint.ah_count.left;
      {after.count.laps, after.count.last_lap} = {hint.ah_count.laps, hint.ah_count.last_lap};
    end
    if (walk.begins.extension) begin
      after.count.left = after.count.left | hint.extension_count.left;
      {after.count.laps, after.count.last_lap} = {hint.extension_count.laps, hint.extension_count.last_lap};
    end
    return after;
  endfunction

  // Returns true if the next chunk counts towards the TCP checksum and is not payload.
  function automatic logic in_tcp_sum(walk_t walk);
    return (walk.parts[PART_IPV4] && (walk.index == 4'd3 || walk.index == 4'd4)) ||
        (walk.parts[PART_IPV6] && walk.index >= 4'd2) || walk.parts[PART_TCP] || walk.parts[PART_OPTIONS];
  endfunction

  // Header fields as received, and properties of the fixed headers.
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

  // Properties of the IPv6 extension headers.
  typedef struct packed {
    logic found;  // there are extension headers
    logic [6:0] transport;  // where TCP begins, in chunks from the IP header
    logic found_tcp;
    logic malformed;
    logic out_of_reach;
    logic later_fragment;
    logic fragment;  // the first of several, or an atomic fragment
    logic opaque;  // there is one other than a fragment header: its content is not read
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

  // State of the TCP options, which may be timestamps and padding in any layout.
  typedef enum logic [2:0] {
    OPTIONS_NOPS,  // only NOPs so far
    OPTIONS_TIMESTAMPS,  // within the timestamps
    OPTIONS_BEHIND,  // NOPs behind them
    OPTIONS_END,  // zeros behind the end of the list
    OPTIONS_OTHER
  } options_state_t;

  typedef struct packed {
    options_state_t state;
    logic [5:0] nops;  // before the timestamps
    logic [5:0] nops_behind;
    logic [3:0] nops_step;  // the latest chunks' NOPs, added to the two counts a cycle later
    logic [3:0] behind_step;
    logic [1:0] lane;  // of the timestamps' first byte
    logic [1:0] age;  // chunks since then
    logic [2:0][31:0] chunks;  // the first three of the timestamps, the latest last
  } options_t;

  // The bytes of a chunk from a lane on, behind the timestamps: they may be NOPs, then the end of the list,
  // then zeros.
  typedef struct packed {
    logic other;
    logic ends;  // there is a zero
    logic [2:0] nops;
  } tail_t;

  // A chunk of options, decoded in every way that `take_options` may need.
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
    // NOPs come first, so the position of the last one gives their number.
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

  // Returns the state after one more chunk of options.
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

  // Returns TSval of options that are timestamps, which span at least three chunks.
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
