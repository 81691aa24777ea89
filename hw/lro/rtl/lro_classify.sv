// SPDX-License-Identifier: MIT OR Apache-2.0
// Builds the LRO_STRUCT of a frame: whether it is eligible (AGGR), whether its checksums are right (CSUM),
// and the fields that decide compares.
//
// Stages: lengths; reasons and folds; the verdict. Frames end at least ten cycles apart, so latched values
// stay valid: the fields from one cycle to ten cycles after `fields_valid`.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_classify
  import lro_pkg::*;
  import lro_types_pkg::*;
  import lro_parser_pkg::*;
(
    input wire clk,
    input wire rst,
    input wire pass_bad_checksum,

    // With the last word of the frame.
    input wire frame_valid,
    input extent_t frame_extent,
    input wire [TIME_W-1:0] frame_arrival,
    input wire frame_bad,

    // Five cycles later.
    input wire fields_valid,
    input fields_t fields,

    // A cycle after the fields.
    input wire extensions_valid,
    input extensions_t extensions,

    // At the latest twelve cycles after the frame's last word; the numbers of NOPs a cycle later.
    input options_t options,

    // Two cycles after the fields; the payload's sum a cycle later.
    input wire sums_valid,
    input wire [HEADER_SUM_W-1:0] ip_sum,
    input wire [HEADER_SUM_W-1:0] tcp_sum,
    input wire [31:0] payload_sum,

    // The structure of a frame, valid until `struct_take`. The next frame's waits until then.
    input wire struct_take,
    output logic struct_valid,
    output lro_struct_t lro_struct
);
  extent_t held_extent_reg, extent_reg;
  logic [TIME_W-1:0] held_arrival_reg, arrival_reg;
  logic held_bad_reg, bad_reg;
  fields_t fields_reg;
  extensions_t extensions_reg;
  logic [HEADER_SUM_W-1:0] ip_sum_reg;
  logic [HEADER_SUM_W-1:0] tcp_sum_reg;
  logic [31:0] payload_sum_reg;
  logic sums_valid_reg;

  always_ff @(posedge clk) begin
    if (frame_valid) begin
      held_extent_reg <= frame_extent;
      held_arrival_reg <= frame_arrival;
      held_bad_reg <= frame_bad;
    end
    if (fields_valid) begin
      extent_reg <= held_extent_reg;
      arrival_reg <= held_arrival_reg;
      bad_reg <= held_bad_reg;
      fields_reg <= fields;
    end
    if (extensions_valid) extensions_reg <= extensions;
    if (sums_valid) begin
      ip_sum_reg  <= ip_sum;
      tcp_sum_reg <= tcp_sum;
    end
    sums_valid_reg <= sums_valid;
    if (sums_valid_reg) payload_sum_reg <= payload_sum;
  end

  // One-hot: cycles since `fields_valid`.
  localparam int OPTIONS_READ = 6;
  localparam int VERDICT = 8;
  logic [VERDICT:0] stage_reg;
  always_ff @(posedge clk) begin
    stage_reg <= {stage_reg[VERDICT-1:0], fields_valid};
    if (rst) stage_reg <= '0;
  end

  // First stage: lengths in bytes, with one addition per cycle.
  wire v6 = fields_reg.flow.v6;
  logic [4:0] network;
  logic [8:0] transport;  // from the IP header
  assign network = 5'd14 + {1'b0, fields_reg.flow.tags, 2'b00};
  assign transport = extensions_reg.found ? {extensions_reg.transport, 2'b00} :
      v6 ? 9'd40 : 9'({fields_reg.header_len, 2'b00});

  logic [8:0] transport_reg;
  logic [8:0] payload_reg;
  logic [9:0] header_end_reg;  // of TCP without options
  logic [9:0] ports_end_reg;
  logic [9:0] payload_at_reg;
  logic [17:0] end_reg;
  logic [17:0] padded_end_reg;
  logic [16:0] shortest_reg;  // length of the IP header: the least that the total may be
  logic [16:0] payload_len_reg;
  logic [16:0] total6_reg;
  logic [17:0] tcp_len6_reg;  // TCP's length and protocol number, for its checksum
  logic no_link_reg;  // the Ethernet header is cut short
  logic [6:0] network_end_reg;
  logic no_network_reg;
  logic cut_short_reg;
  logic no_transport_reg;
  logic no_ports_reg;
  logic no_options_reg;
  logic out_of_reach_reg;
  logic trailer_reg;
  logic empty_reg;

  always_ff @(posedge clk) begin
    transport_reg <= transport;
    total6_reg <= fields_reg.total + 17'd6;
    end_reg <= 18'(fields_reg.total) + 18'(network);
    shortest_reg <= v6 ? 17'd40 : 17'({fields_reg.header_len, 2'b00});
    no_link_reg <= extent_reg.len < 16'(network);
    network_end_reg <= 7'(network) + (v6 ? 7'd40 : 7'd20);
    no_network_reg <= extent_reg.len < 16'(network_end_reg);

    payload_reg <= transport_reg + 9'({fields_reg.template_.data_offset, 2'b00});
    payload_at_reg <= 10'(transport_reg) + 10'({fields_reg.template_.data_offset, 2'b00}) + 10'(network);
    padded_end_reg <= end_reg + 18'(MAX_PADDING);
    tcp_len6_reg <= 18'(total6_reg) - 18'(transport_reg);
    header_end_reg <= 10'(transport_reg) + 10'd20;
    ports_end_reg <= 10'(transport_reg) + 10'd4;
    no_transport_reg <= 17'(header_end_reg) > fields_reg.total;
    no_ports_reg <= 17'(ports_end_reg) > fields_reg.total;
    cut_short_reg <= end_reg > 18'(extent_reg.len) || fields_reg.total < shortest_reg;

    no_options_reg <= fields_reg.template_.data_offset < 4'd5 || 17'(payload_reg) > fields_reg.total;
    out_of_reach_reg <= payload_at_reg > 10'd256;
    trailer_reg <= 18'(extent_reg.len) > padded_end_reg;
    empty_reg <= fields_reg.total == 17'(payload_reg);
    payload_len_reg <= fields_reg.total - 17'(payload_reg);
  end

  // Second stage: folds the sums, with one addition per cycle.
  logic [16:0] ip_fold_reg;
  logic [17:0] tcp_fold_reg;
  logic [16:0] payload_fold_reg;
  logic [15:0] payload_word_reg;
  logic [16:0] tcp_word_reg;
  logic [17:0] tcp_both_reg;
  logic [16:0] tcp_all_reg;
  logic [16:0] tcp_sum_fold_reg;
  logic [17:0] ack_window_reg;
  logic [16:0] ack_window_fold_reg;
  logic [15:0] ack_window_sum_reg;
  logic [17:0] ack_reg;
  logic ip_wrong_reg;
  logic tcp_wrong_reg;

  always_ff @(posedge clk) begin
    tcp_sum_fold_reg <= 17'(tcp_sum_reg[HEADER_SUM_W-1:16]) + 17'(tcp_sum_reg[15:0]);
    ip_fold_reg <= 17'(ip_sum_reg[HEADER_SUM_W-1:16]) + 17'(ip_sum_reg[15:0]);
    tcp_fold_reg <= 18'(tcp_sum_fold_reg) + tcp_len6_reg;
    payload_fold_reg <= 17'(payload_sum_reg[31:16]) + 17'(payload_sum_reg[15:0]);

    ip_wrong_reg <= ip_fold_reg != 17'h0FFFF;
    tcp_word_reg <= 17'(tcp_fold_reg[15:0]) + 17'(tcp_fold_reg[17:16]);
    payload_word_reg <= payload_fold_reg[15:0] + 16'(payload_fold_reg[16]);

    tcp_both_reg <= 18'(tcp_word_reg) + 18'(payload_word_reg);
    tcp_all_reg <= 17'(tcp_both_reg[15:0]) + 17'(tcp_both_reg[17:16]);

    ack_reg <= 18'(fields_reg.ack[31:16]) + 18'(fields_reg.ack[15:0]);
    ack_window_reg <= ack_reg + 18'(fields_reg.window);
    ack_window_fold_reg <= 17'(ack_window_reg[15:0]) + 17'(ack_window_reg[17:16]);
    ack_window_sum_reg <= ack_window_fold_reg[15:0] + 16'(ack_window_fold_reg[16]);
  end

  // Third stage: the verdict. Flags from AE to FIN.
  logic [8:0] flags;
  assign flags = fields_reg.flags;
  wire ae = flags[8];
  wire cwr = flags[7];
  wire urg = flags[5];
  wire ack = flags[4];
  wire psh = flags[3];
  wire rst_flag = flags[2];
  wire syn = flags[1];
  wire fin = flags[0];
  wire has_options = fields_reg.template_.data_offset != 4'd5;
  wire has_timestamps = options.state == OPTIONS_BEHIND || options.state == OPTIONS_END;
  wire ip_options = !v6 && fields_reg.header_len > 4'd5;

  // Why a whole TCP segment is not eligible: the twin of `not_eligible` in netfpga.rs. Computes the reasons
  // that precede the options in its order while the options are still being read.
  logic before_found;
  pass_reason_t before_options;
  always_comb begin
    before_found = 1'b1;
    before_options = PASS_SYN;
    if (syn) before_options = PASS_SYN;
    else if (rst_flag) before_options = PASS_RST;
    else if (empty_reg) before_options = fin ? PASS_FIN : PASS_PURE_ACK;
    else if (urg) before_options = PASS_URG;
    else if (cwr || ae) before_options = PASS_CONGESTION_FLAGS;
    else if (!ack) before_options = PASS_UNUSUAL_FLAGS;
    else if (ip_options) before_options = PASS_IP_OPTIONS;
    else if (fin) before_options = PASS_FIN;
    else if (psh) before_options = PASS_PSH;
    else before_found = 1'b0;
  end

  logic before_found_reg;
  pass_reason_t before_options_reg;
  logic has_options_reg;
  logic eligible;
  pass_reason_t not_eligible;
  always_comb begin
    eligible = 1'b0;
    not_eligible = before_options_reg;
    if (!before_found_reg) begin
      if (has_options_reg && !has_timestamps) not_eligible = PASS_TCP_OPTIONS;
      else if (trailer_reg) not_eligible = PASS_TRAILER;
      else eligible = 1'b1;
    end
  end

  // The class of the frame: the twin of `parse_without_extensions` in parse.rs and of reach.rs.
  logic whole;  // a whole TCP segment
  logic barrier;  // a first fragment, which may end within the TCP header, or opaque
  class_t class_parsed;
  pass_reason_t reason_parsed;
  always_comb begin
    whole = 1'b0;
    barrier = extensions_reg.opaque || fields_reg.fragment || extensions_reg.fragment;
    class_parsed = CLASS_PASS;
    reason_parsed = PASS_MALFORMED;
    if (no_link_reg || !fields_reg.is_ip) reason_parsed = PASS_NOT_TCP;
    else if (no_network_reg || cut_short_reg || fields_reg.malformed || extensions_reg.malformed) reason_parsed = PASS_MALFORMED;
    else if (extensions_reg.out_of_reach) begin
      class_parsed  = CLASS_PASS_ALL;
      reason_parsed = PASS_IP_OPTIONS;
    end else if (fields_reg.not_tcp) reason_parsed = PASS_NOT_TCP;
    else if (!(fields_reg.found_tcp || extensions_reg.found_tcp)) reason_parsed = PASS_MALFORMED;
    else if (fields_reg.later_fragment || extensions_reg.later_fragment) reason_parsed = PASS_FRAGMENT;
    else if (no_ports_reg || (no_transport_reg && !barrier)) reason_parsed = PASS_MALFORMED;
    else if (out_of_reach_reg && !no_transport_reg) begin
      class_parsed  = CLASS_PASS_ALL;
      reason_parsed = PASS_IP_OPTIONS;
    end else if (extensions_reg.opaque) begin
      class_parsed  = CLASS_PASS_FLOW;
      reason_parsed = PASS_IP_OPTIONS;
    end else if (fields_reg.fragment || extensions_reg.fragment) begin
      class_parsed  = CLASS_PASS_FLOW;
      reason_parsed = PASS_FRAGMENT;
    end else if (no_options_reg) reason_parsed = PASS_MALFORMED;
    else whole = 1'b1;
  end

  // Registers the verdicts that need no checksum, which are ready before the checksums.
  logic whole_reg;
  logic [15:0] whole_len_reg;
  logic eligible_reg;
  class_t class_reg;
  pass_reason_t reason_reg;
  pass_reason_t not_eligible_reg;
  logic [5:0] ts_at_reg;
  logic [5:0] ts_nops_reg;
  logic [31:0] ts_value_reg;
  always_ff @(posedge clk) begin
    whole_reg <= whole;
    class_reg <= class_parsed;
    reason_reg <= reason_parsed;
    before_found_reg <= before_found;
    before_options_reg <= before_options;
    has_options_reg <= has_options;
    if (stage_reg[OPTIONS_READ]) begin
      eligible_reg <= eligible;
      not_eligible_reg <= not_eligible;
      ts_value_reg <= ts_value(options);
    end
    if (stage_reg[OPTIONS_READ+1]) begin
      ts_at_reg   <= has_options_reg ? options.nops + 6'd2 : '0;
      ts_nops_reg <= has_options_reg ? options.nops_behind : '0;
    end
    whole_len_reg <= whole_reg ? payload_len_reg[15:0] : '0;
    tcp_wrong_reg <= tcp_all_reg != 17'h0FFFF;
  end

  wire ip_wrong = ip_wrong_reg && !v6;
  wire wrong = whole_reg && (ip_wrong || tcp_wrong_reg);
  class_t class_next;
  logic [4:0] reason_next;
  always_comb begin
    class_next  = class_reg;
    reason_next = 5'(reason_reg);
    if (bad_reg) begin
      class_next = CLASS_BAD;
    end else if (wrong && !pass_bad_checksum) begin
      class_next  = CLASS_DROP;
      reason_next = ip_wrong ? 5'(DROP_IP_CHECKSUM) : 5'(DROP_TCP_CHECKSUM);
    end else if (wrong) begin
      class_next  = CLASS_PASS_FLOW;
      reason_next = 5'(PASS_BAD_CHECKSUM);
    end else if (whole_reg) begin
      class_next  = eligible_reg ? CLASS_STORE : CLASS_PASS_FLOW;
      reason_next = 5'(not_eligible_reg);
    end
  end

  // While two frames wait (one here, one in `lro_struct`), the ingress holds back the last word of the next
  // frame, so all values above stay until they are loaded here.
  logic waiting_reg;
  wire load = (stage_reg[VERDICT] || waiting_reg) && !struct_valid;

  always_ff @(posedge clk) begin
    waiting_reg  <= (stage_reg[VERDICT] || waiting_reg) && !load;
    struct_valid <= load || (struct_valid && !struct_take);
    if (load) begin
      lro_struct.class_ <= class_next;
      lro_struct.reason <= reason_next;
      lro_struct.extent <= extent_reg;
      lro_struct.arrival <= arrival_reg;
      lro_struct.flow <= fields_reg.flow;
      lro_struct.template_ <= fields_reg.template_;
      lro_struct.template_.ts_at <= ts_at_reg;
      lro_struct.template_.ts_nops <= ts_nops_reg;
      lro_struct.seq <= fields_reg.seq;
      lro_struct.ack <= fields_reg.ack;
      lro_struct.window <= fields_reg.window;
      lro_struct.ack_window_sum <= ack_window_sum_reg;
      lro_struct.ts_value <= ts_value_reg;
      lro_struct.payload_len <= whole_len_reg;
      lro_struct.payload_sum <= payload_word_reg;
      lro_struct.payload_at <= payload_at_reg[7:0];
      lro_struct.headers_len <= payload_reg[7:0];
      lro_struct.ip_checksum <= fields_reg.ip_checksum;
      lro_struct.tcp_checksum <= fields_reg.tcp_checksum;
    end
    if (rst) begin
      waiting_reg  <= 1'b0;
      struct_valid <= 1'b0;
    end
  end
endmodule

`resetall
