// SPDX-License-Identifier: MIT OR Apache-2.0
// LRO_STRUCT of a frame: whether it is eligible (AGGR), whether its checksums are right (CSUM), and what decide compares.
//
// Stages: lengths; reasons and folds; the verdict. Frames end at least ten cycles apart, so that what is latched stays.
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

    // Two cycles later.
    input wire fields_valid,
    input walk_t walk,
    input fields_t fields,

    // Eight cycles after the frame's last word at the latest.
    input options_t options,

    // Two cycles after the fields.
    input wire sums_valid,
    input wire [31:0] ip_sum,
    input wire [31:0] tcp_sum,
    input wire [31:0] payload_sum,

    output logic struct_valid,
    output lro_struct_t lro_struct
);
  extent_t extent_reg;
  logic [TIME_W-1:0] arrival_reg;
  logic bad_reg;
  walk_t walk_reg;
  fields_t fields_reg;
  logic [31:0] ip_sum_reg;
  logic [31:0] tcp_sum_reg;
  logic [31:0] payload_sum_reg;

  always_ff @(posedge clk) begin
    if (frame_valid) begin
      extent_reg <= frame_extent;
      arrival_reg <= frame_arrival;
      bad_reg <= frame_bad;
    end
    if (fields_valid) begin
      walk_reg <= walk;
      fields_reg <= fields;
    end
    if (sums_valid) begin
      ip_sum_reg <= ip_sum;
      tcp_sum_reg <= tcp_sum;
      payload_sum_reg <= payload_sum;
    end
  end

  // First stage: lengths, in bytes.
  logic [4:0] network;
  logic [17:0] end_;
  logic [8:0] transport;  // from the IP header
  logic [8:0] payload;
  assign network = 5'd14 + {1'b0, walk_reg.tags, 2'b00};
  assign end_ = 18'(walk_reg.total) + 18'(network);
  assign transport = {walk_reg.transport, 2'b00};
  assign payload = transport + 9'({fields_reg.template_.data_offset, 2'b00});

  logic no_link_reg;  // the Ethernet header is cut short
  logic no_network_reg;
  logic cut_short_reg;
  logic no_transport_reg;
  logic no_options_reg;
  logic out_of_reach_reg;
  logic long_header_reg;
  logic trailer_reg;
  logic empty_reg;
  logic [16:0] payload_len_reg;
  logic [16:0] tcp_len_reg;

  always_ff @(posedge clk) begin
    no_link_reg <= extent_reg.len < 16'(network);
    no_network_reg <= extent_reg.len < 16'(network) + (walk_reg.v6 ? 16'd40 : 16'd20);
    cut_short_reg <= end_ > 18'(extent_reg.len) || walk_reg.total < (walk_reg.v6 ? 17'd40 : 17'(transport));
    no_transport_reg <= 17'(transport) + 17'd20 > walk_reg.total;
    no_options_reg <= fields_reg.template_.data_offset < 4'd5 || 17'(payload) > walk_reg.total;
    out_of_reach_reg <= 10'(payload) + 10'(network) > 10'd256;
    long_header_reg <= 10'(payload) + 10'(network) > 10'(MAX_HEADER);
    trailer_reg <= 18'(extent_reg.len) > end_ + 18'(MAX_PADDING);
    empty_reg <= walk_reg.total == 17'(payload);
    payload_len_reg <= walk_reg.total - 17'(payload);
    tcp_len_reg <= walk_reg.total - 17'(transport);
  end

  logic [7:0] stage_reg;
  always_ff @(posedge clk) begin
    stage_reg <= {stage_reg[6:0], fields_valid};
    if (rst) stage_reg <= '0;
  end

  // Second stage: folds of the sums, each addition in a cycle of its own.
  logic [16:0] ip_fold_reg;
  logic [17:0] tcp_fold_reg;
  logic [16:0] payload_fold_reg;
  logic [15:0] payload_word_reg;
  logic [16:0] tcp_word_reg;
  logic [17:0] tcp_both_reg;
  logic [16:0] tcp_all_reg;
  logic [17:0] tcp_len6_reg;
  logic [17:0] ack_window_reg;
  logic [16:0] ack_window_fold_reg;
  logic ip_wrong_reg;

  always_ff @(posedge clk) begin
    tcp_len6_reg <= 18'(tcp_len_reg) + 18'd6;
    ip_fold_reg <= 17'(ip_sum_reg[31:16]) + 17'(ip_sum_reg[15:0]);
    tcp_fold_reg <= 18'(tcp_sum_reg[31:16]) + 18'(tcp_sum_reg[15:0]) + tcp_len6_reg;
    payload_fold_reg <= 17'(payload_sum_reg[31:16]) + 17'(payload_sum_reg[15:0]);

    ip_wrong_reg <= ip_fold_reg != 17'h0FFFF;
    tcp_word_reg <= 17'(tcp_fold_reg[15:0]) + 17'(tcp_fold_reg[17:16]);
    payload_word_reg <= payload_fold_reg[15:0] + 16'(payload_fold_reg[16]);

    tcp_both_reg <= 18'(tcp_word_reg) + 18'(payload_word_reg);
    tcp_all_reg <= 17'(tcp_both_reg[15:0]) + 17'(tcp_both_reg[17:16]);

    ack_window_reg <= 18'(fields_reg.ack[31:16]) + 18'(fields_reg.ack[15:0]) + 18'(fields_reg.window);
    ack_window_fold_reg <= 17'(ack_window_reg[15:0]) + 17'(ack_window_reg[17:16]);
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
  wire ip_options = (walk_reg.extended && !walk_reg.v6) || long_header_reg;

  // Why a whole TCP segment is not eligible: the twin of `not_eligible` in netfpga.rs.
  logic eligible;
  pass_reason_t not_eligible;
  always_comb begin
    eligible = 1'b0;
    not_eligible = PASS_SYN;
    if (syn) not_eligible = PASS_SYN;
    else if (rst_flag) not_eligible = PASS_RST;
    else if (empty_reg) not_eligible = fin ? PASS_FIN : PASS_PURE_ACK;
    else if (urg) not_eligible = PASS_URG;
    else if (cwr || ae) not_eligible = PASS_CONGESTION_FLAGS;
    else if (!ack) not_eligible = PASS_UNUSUAL_FLAGS;
    else if (ip_options) not_eligible = PASS_IP_OPTIONS;
    else if (fin) not_eligible = PASS_FIN;
    else if (psh) not_eligible = PASS_PSH;
    else if (has_options && !has_timestamps) not_eligible = PASS_TCP_OPTIONS;
    else if (walk_reg.extended) not_eligible = PASS_IP_OPTIONS;
    else if (trailer_reg) not_eligible = PASS_TRAILER;
    else eligible = 1'b1;
  end

  // What the frame is: the twin of `parse_any`.
  logic whole;  // a whole TCP segment
  class_t class_parsed;
  pass_reason_t reason_parsed;
  always_comb begin
    whole = 1'b0;
    class_parsed = CLASS_PASS;
    reason_parsed = PASS_MALFORMED;
    if (no_link_reg || !walk_reg.is_ip) reason_parsed = PASS_NOT_TCP;
    else if (no_network_reg || cut_short_reg || walk_reg.malformed) reason_parsed = PASS_MALFORMED;
    else if (walk_reg.out_of_reach) begin
      class_parsed  = CLASS_PASS_ALL;
      reason_parsed = PASS_IP_OPTIONS;
    end else if (walk_reg.not_tcp) reason_parsed = PASS_NOT_TCP;
    else if (!walk_reg.found_tcp) reason_parsed = PASS_MALFORMED;
    else if (walk_reg.later_fragment) reason_parsed = PASS_FRAGMENT;
    else if (no_transport_reg) reason_parsed = PASS_MALFORMED;
    else if (out_of_reach_reg) begin
      class_parsed  = CLASS_PASS_ALL;
      reason_parsed = PASS_IP_OPTIONS;
    end else if (walk_reg.opaque) begin
      class_parsed  = CLASS_PASS_FLOW;
      reason_parsed = PASS_IP_OPTIONS;
    end else if (walk_reg.fragment) begin
      class_parsed  = CLASS_PASS_FLOW;
      reason_parsed = PASS_FRAGMENT;
    end else if (no_options_reg) reason_parsed = PASS_MALFORMED;
    else whole = 1'b1;
  end

  // Verdicts that need no checksum are a cycle ahead of it.
  logic whole_reg;
  logic eligible_reg;
  class_t class_reg;
  pass_reason_t reason_reg;
  pass_reason_t not_eligible_reg;
  logic [5:0] ts_at_reg;
  logic [5:0] ts_nops_reg;
  logic [31:0] ts_value_reg;
  always_ff @(posedge clk) begin
    whole_reg <= whole;
    eligible_reg <= eligible;
    class_reg <= class_parsed;
    reason_reg <= reason_parsed;
    not_eligible_reg <= not_eligible;
    ts_at_reg <= has_options ? options.nops + 6'd2 : '0;
    ts_nops_reg <= has_options ? options.nops_behind : '0;
    ts_value_reg <= ts_value(options);
  end

  wire tcp_wrong = tcp_all_reg != 17'h0FFFF;
  wire ip_wrong = ip_wrong_reg && !walk_reg.v6;
  wire wrong = whole_reg && (ip_wrong || tcp_wrong);

  always_ff @(posedge clk) begin
    struct_valid <= stage_reg[7];
    lro_struct.extent <= extent_reg;
    lro_struct.arrival <= arrival_reg;
    lro_struct.flow <= fields_reg.flow;
    lro_struct.flow.v6 <= walk_reg.v6;
    lro_struct.flow.tags <= walk_reg.tags;
    lro_struct.template_ <= fields_reg.template_;
    lro_struct.template_.ts_at <= ts_at_reg;
    lro_struct.template_.ts_nops <= ts_nops_reg;
    lro_struct.seq <= fields_reg.seq;
    lro_struct.ack <= fields_reg.ack;
    lro_struct.window <= fields_reg.window;
    lro_struct.ack_window_sum <= ack_window_fold_reg[15:0] + 16'(ack_window_fold_reg[16]);
    lro_struct.ts_value <= ts_value_reg;
    lro_struct.payload_len <= whole_reg ? payload_len_reg[15:0] : '0;
    lro_struct.payload_sum <= payload_word_reg;
    lro_struct.payload_at <= 8'(payload) + 8'(network);
    lro_struct.headers_len <= payload[7:0];
    lro_struct.ip_checksum <= fields_reg.ip_checksum;
    lro_struct.tcp_checksum <= fields_reg.tcp_checksum;
    lro_struct.class_ <= class_reg;
    lro_struct.reason <= 5'(reason_reg);
    if (bad_reg) begin
      lro_struct.class_ <= CLASS_BAD;
    end else if (wrong && !pass_bad_checksum) begin
      lro_struct.class_ <= CLASS_DROP;
      lro_struct.reason <= ip_wrong ? 5'(DROP_IP_CHECKSUM) : 5'(DROP_TCP_CHECKSUM);
    end else if (wrong) begin
      lro_struct.class_ <= CLASS_PASS_FLOW;
      lro_struct.reason <= 5'(PASS_BAD_CHECKSUM);
    end else if (whole_reg) begin
      lro_struct.class_ <= eligible_reg ? CLASS_STORE : CLASS_PASS_FLOW;
      lro_struct.reason <= 5'(not_eligible_reg);
    end
    if (rst) struct_valid <= 1'b0;
  end

endmodule

`resetall
