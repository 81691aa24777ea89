// SPDX-License-Identifier: MIT OR Apache-2.0
// Parser: reads the headers of a frame in chunks of four bytes, all chunks of a word in one cycle.
//
// Stages: hints, which decode each chunk for the walk; the walk over the headers; the part of each chunk;
// rotation of the chunks to lanes by their position in the header; fields.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_parser
  import lro_types_pkg::*;
  import lro_parser_pkg::*;
#(
    parameter int DATA_W = 64
) (
    input wire clk,
    input wire rst,

    input wire word_valid,
    input wire word_first,
    input wire word_last,
    input wire [DATA_W-1:0] word,

    // Chunks with their parts, three cycles after the word.
    output logic chunks_valid,
    output logic chunks_first,
    output logic chunks_last,
    output chunk_t [DATA_W/32-1:0] chunks,

    // TCP header and options, a cycle after the chunks: chunk j is at place j % CHUNKS; the options begin
    // with chunk 5.
    output logic [DATA_W/32-1:0][31:0] tcp_data,
    output logic [DATA_W/32-1:0] option_valid,
    output logic [DATA_W/32-1:0][3:0] option_at,

    // The fields of the fixed headers, two cycles after the chunks.
    output logic fields_valid,
    output fields_t fields
);
  localparam int CHUNKS = DATA_W / 32;
  localparam int CHUNK_W = $clog2(CHUNKS);
  typedef logic [CHUNK_W-1:0] lane_t;

  // First stage: hints.
  hint_t [CHUNKS-1:0] hints_reg;
  logic hints_valid_reg, hints_first_reg, hints_last_reg;

  always_ff @(posedge clk) begin
    hints_valid_reg <= word_valid;
    hints_first_reg <= word_valid && word_first;
    hints_last_reg  <= word_valid && word_last;
    for (int i = 0; i < CHUNKS; i++) hints_reg[i] <= hint_of(word[DATA_W-1-32*i-:32]);
    if (rst) begin
      hints_valid_reg <= 1'b0;
      hints_first_reg <= 1'b0;
      hints_last_reg  <= 1'b0;
    end
  end

  // Second stage: the walk, which restarts with each frame. It is a feedback loop of one cycle, so nothing
  // else is in it.
  walk_t walk_reg;
  walk_t walk_next;
  always_comb begin
    walk_next = walk_reg;
    for (int i = 0; i < CHUNKS; i++) walk_next = walk_step(walk_next, hints_reg[i]);
  end

  // The state of the walk before the word, and the word.
  walk_t before_reg;
  hint_t [CHUNKS-1:0] walked_reg;
  logic walked_valid_reg, walked_first_reg, walked_last_reg;
  always_ff @(posedge clk) begin
    before_reg <= walk_reg;
    walked_reg <= hints_reg;
    walked_valid_reg <= hints_valid_reg;
    walked_first_reg <= hints_first_reg;
    walked_last_reg <= hints_last_reg;
    if (hints_valid_reg) walk_reg <= walk_next;
    if (rst || hints_last_reg) walk_reg <= walk_start();
    if (rst) begin
      walked_valid_reg <= 1'b0;
      walked_first_reg <= 1'b0;
      walked_last_reg  <= 1'b0;
    end
  end

  // Third stage: the part of each chunk, by the same steps again.
  walk_t walk_at;
  chunk_t [CHUNKS-1:0] chunks_next;
  always_comb begin
    walk_at = before_reg;
    for (int i = 0; i < CHUNKS; i++) begin
      chunks_next[i].data = walked_reg[i].data;
      chunks_next[i].parts = walk_at.parts;
      chunks_next[i].index = walk_at.index;
      chunks_next[i].kind = walk_at.next;
      chunks_next[i].top = walked_reg[i].top;
      chunks_next[i].offset = walked_reg[i].offset;
      chunks_next[i].tcp_sum = in_tcp_sum(walk_at);
      chunks_next[i].length4 = walk_at.ipv4_first;
      chunks_next[i].length6 = walk_at.ipv6_second;
      walk_at = walk_step(walk_at, walked_reg[i]);
    end
  end

  always_ff @(posedge clk) begin
    chunks_valid <= walked_valid_reg;
    chunks_first <= walked_first_reg;
    chunks_last  <= walked_last_reg;
    chunks <= chunks_next;
    if (rst) begin
      chunks_valid <= 1'b0;
      chunks_first <= 1'b0;
      chunks_last  <= 1'b0;
    end
  end

  // Fourth stage: rotates chunk j of the IP header to `ip_data_reg[j % CHUNKS]`, and chunk j of TCP to
  // `tcp_data[j % CHUNKS]`.
  logic [CHUNKS-1:0][31:0] ip_data_reg;
  logic [4:0] ipv4_take_reg;
  logic [9:0] ipv6_take_reg;
  logic [4:0] tcp_take_reg;
  logic [2:0] link_take_reg;
  logic other_reg;
  logic turned_first_reg;
  logic turned_last_reg;
  lane_t ip_lane, tcp_lane;
  logic [CHUNKS-1:0][3:0] tcp_at;

  always_comb begin
    ip_lane  = '0;
    tcp_lane = '0;
    for (int i = 0; i < CHUNKS; i++) begin
      tcp_at[i] = chunks[i].parts[PART_OPTIONS] ? chunks[i].index + 4'd5 : chunks[i].index;
      if (chunks[i].parts[PART_IPV4] || chunks[i].parts[PART_IPV6]) begin
        ip_lane = ip_lane | (lane_t'(i) - chunks[i].index[CHUNK_W-1:0]);
      end
      if (chunks[i].parts[PART_TCP] || chunks[i].parts[PART_OPTIONS]) begin
        tcp_lane = tcp_lane | (lane_t'(i) - tcp_at[i][CHUNK_W-1:0]);
      end
    end
  end

  always_ff @(posedge clk) begin
    turned_first_reg <= chunks_first;
    turned_last_reg <= chunks_last;
    ipv4_take_reg <= '0;
    ipv6_take_reg <= '0;
    tcp_take_reg <= '0;
    link_take_reg <= '0;
    other_reg <= 1'b0;
    for (int j = 0; j < CHUNKS; j++) begin
      ip_data_reg[j] <= chunks[lane_t'(ip_lane+lane_t'(j))].data;
      tcp_data[j] <= chunks[lane_t'(tcp_lane+lane_t'(j))].data;
      option_at[j] <= tcp_at[lane_t'(tcp_lane+lane_t'(j))];
      option_valid[j] <= chunks_valid && chunks[lane_t'(tcp_lane+lane_t'(j))].parts[PART_OPTIONS];
    end
    for (int i = 0; i < CHUNKS; i++) begin
      if (chunks_valid) begin
        for (int j = 0; j < 5; j++) begin
          if (chunks[i].parts[PART_IPV4] && chunks[i].index == 4'(j)) ipv4_take_reg[j] <= 1'b1;
          if (chunks[i].parts[PART_TCP] && chunks[i].index == 4'(j)) tcp_take_reg[j] <= 1'b1;
        end
        for (int j = 0; j < 10; j++) begin
          if (chunks[i].parts[PART_IPV6] && chunks[i].index == 4'(j)) ipv6_take_reg[j] <= 1'b1;
        end
        if (chunks[i].parts[PART_ETHERNET] && chunks[i].index == 4'd3) link_take_reg[0] <= 1'b1;
        if (chunks[i].parts[PART_TAG0]) link_take_reg[1] <= 1'b1;
        if (chunks[i].parts[PART_TAG1]) link_take_reg[2] <= 1'b1;
        if (chunks[i].parts == '0) other_reg <= 1'b1;
      end
    end
    if (rst) begin
      turned_last_reg <= 1'b0;
      option_valid <= '0;
    end
  end

  // Fifth stage: fields. Reads the EtherType and the tags from `tcp_data`, where they are not rotated: their
  // word has no chunk of TCP.
  always_ff @(posedge clk) begin
    fields_valid <= turned_last_reg;

    // Clears the fields that headers may leave unset. The first word of 32 bytes may set some below.
    if (turned_first_reg) begin
      fields.flow <= '0;
      {fields.template_.pcp0, fields.template_.pcp1} <= '0;
      {fields.is_ip, fields.malformed, fields.found_tcp, fields.not_tcp} <= '0;
      {fields.later_fragment, fields.fragment} <= '0;
    end

    if (link_take_reg[0]) fields.template_.qinq <= tcp_data[3%CHUNKS][15:0] == ETHERTYPE_QINQ;
    if (link_take_reg[1]) begin
      {fields.template_.pcp0, fields.flow.vid0} <= tcp_data[4%CHUNKS][31:16];
      fields.flow.tags[0] <= 1'b1;
    end
    if (link_take_reg[2]) begin
      {fields.template_.pcp1, fields.flow.vid1} <= tcp_data[5%CHUNKS][31:16];
      fields.flow.tags <= 2'd2;
    end
    if (other_reg) fields.not_tcp <= 1'b1;

    if (ipv4_take_reg[0]) begin
      fields.is_ip <= 1'b1;
      fields.total <= 17'(ip_data_reg[0][15:0]);
      fields.header_len <= ip_data_reg[0][27:24];
      fields.template_.traffic_class <= ip_data_reg[0][23:16];
      if (ip_data_reg[0][31:28] != 4'd4 || ip_data_reg[0][27:24] < 4'd5) fields.malformed <= 1'b1;
    end
    if (ipv4_take_reg[1]) begin
      fields.template_.label <= {18'b0, ip_data_reg[1][15:14]};
      fields.later_fragment <= ip_data_reg[1][12:0] != 0;
      fields.fragment <= ip_data_reg[1][13];
    end
    if (ipv4_take_reg[2]) begin
      {fields.template_.ttl, fields.ip_checksum} <= {ip_data_reg[2%CHUNKS][31:24], ip_data_reg[2%CHUNKS][15:0]};
      if (ip_data_reg[2%CHUNKS][23:16] != PROTOCOL_TCP) fields.not_tcp <= 1'b1;
    end
    if (ipv4_take_reg[3]) fields.flow.src[31:0] <= ip_data_reg[3%CHUNKS];
    if (ipv4_take_reg[4]) fields.flow.dst[31:0] <= ip_data_reg[4%CHUNKS];

    if (ipv6_take_reg[0]) begin
      fields.is_ip   <= 1'b1;
      fields.flow.v6 <= 1'b1;
      {fields.template_.traffic_class, fields.template_.label} <= ip_data_reg[0][27:0];
      if (ip_data_reg[0][31:28] != 4'd6) fields.malformed <= 1'b1;
    end
    if (ipv6_take_reg[1]) begin
      fields.total <= 17'(ip_data_reg[1][31:16]) + 17'd40;
      fields.template_.ttl <= ip_data_reg[1][7:0];
    end
    for (int j = 0; j < 4; j++) begin
      if (ipv6_take_reg[j+2]) fields.flow.src[127-32*j-:32] <= ip_data_reg[(j+2)%CHUNKS];
      if (ipv6_take_reg[j+6]) fields.flow.dst[127-32*j-:32] <= ip_data_reg[(j+6)%CHUNKS];
    end

    if (tcp_take_reg[0]) begin
      fields.found_tcp  <= 1'b1;
      fields.flow.ports <= tcp_data[0];
    end
    if (tcp_take_reg[1]) fields.seq <= tcp_data[1];
    if (tcp_take_reg[2]) fields.ack <= tcp_data[2%CHUNKS];
    if (tcp_take_reg[3]) begin
      fields.template_.data_offset <= tcp_data[3%CHUNKS][31:28];
      fields.template_.reserved <= tcp_data[3%CHUNKS][27:25];
      fields.template_.ece <= tcp_data[3%CHUNKS][22];
      fields.flags <= tcp_data[3%CHUNKS][24:16];
      fields.window <= tcp_data[3%CHUNKS][15:0];
    end
    if (tcp_take_reg[4]) {fields.tcp_checksum, fields.template_.urgent} <= tcp_data[4%CHUNKS];
    if (rst) fields_valid <= 1'b0;
  end
endmodule

`resetall
