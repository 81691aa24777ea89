// SPDX-License-Identifier: MIT OR Apache-2.0
// Checksums: sums of the IPv4 header, of the TCP header with the addresses, and of the payload.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_checksum
  import lro_types_pkg::*;
  import lro_parser_pkg::*;
#(
    parameter int DATA_W = 64
) (
    input wire clk,
    input wire rst,

    input wire chunks_valid,
    input wire chunks_last,
    input chunk_t [DATA_W/32-1:0] chunks,

    // Not folded. The sum of TCP lacks protocol and length.
    output logic sums_valid,
    output logic [31:0] ip_sum,
    output logic [31:0] tcp_sum,
    output logic [31:0] payload_sum
);
  localparam int CHUNKS = DATA_W / 32;

  // Bytes of the IP packet that are to come.
  logic [16:0] left_reg;
  logic [16:0] left_next;
  logic [CHUNKS-1:0][31:0] ip_masked;
  logic [CHUNKS-1:0][31:0] tcp_masked;
  logic [CHUNKS-1:0][31:0] payload_masked;

  function automatic logic is_address(chunk_t chunk);
    return (chunk.part == PART_IPV4 && (chunk.index == 4'd3 || chunk.index == 4'd4)) ||
        (chunk.part == PART_IPV6 && chunk.index >= 4'd2);
  endfunction

  // The bytes that belong to the packet where `left` are to come.
  function automatic logic [31:0] within_packet(logic [31:0] data, logic [16:0] left);
    if (left[16:2] != 0) return data;
    case (left[1:0])
      2'd0: return '0;
      2'd1: return {data[31:24], 24'b0};
      2'd2: return {data[31:16], 16'b0};
      default: return {data[31:8], 8'b0};
    endcase
  endfunction

  always_comb begin
    left_next = left_reg;
    for (int i = 0; i < CHUNKS; i++) begin
      if (chunks[i].part == PART_IPV4 && chunks[i].index == 4'd0) left_next = 17'(chunks[i].data[15:0]);
      if (chunks[i].part == PART_IPV6 && chunks[i].index == 4'd1) begin
        left_next = 17'(chunks[i].data[31:16]) + 17'd36;
      end
      ip_masked[i] = chunks[i].part == PART_IPV4 ? chunks[i].data : '0;
      tcp_masked[i] = (is_address(chunks[i]) || chunks[i].part == PART_TCP || chunks[i].part == PART_OPTIONS) ?
          chunks[i].data : '0;
      payload_masked[i] = chunks[i].part == PART_PAYLOAD ? within_packet(chunks[i].data, left_next) : '0;
      left_next = left_next[16:2] == 0 ? '0 : left_next - 17'd4;
    end
  end

  // Sums of one word, then those of the frame.
  logic [1:0] valid_reg;
  logic [1:0] last_reg;
  logic [CHUNKS-1:0][31:0] ip_reg, tcp_reg, payload_reg;
  logic [CHUNKS-1:0][16:0] ip_pairs, tcp_pairs, payload_pairs;
  logic [31:0] ip_total, tcp_total, payload_total;

  function automatic logic [16:0] pair(logic [31:0] data);
    return 17'(data[31:16]) + 17'(data[15:0]);
  endfunction

  always_comb begin
    ip_total = ip_sum;
    tcp_total = tcp_sum;
    payload_total = payload_sum;
    if (sums_valid) {ip_total, tcp_total, payload_total} = '0;
    for (int i = 0; i < CHUNKS; i++) begin
      ip_total += 32'(ip_pairs[i]);
      tcp_total += 32'(tcp_pairs[i]);
      payload_total += 32'(payload_pairs[i]);
    end
  end

  always_ff @(posedge clk) begin
    if (chunks_valid) left_reg <= left_next;
    valid_reg <= {valid_reg[0], chunks_valid};
    last_reg <= {last_reg[0], chunks_last};
    ip_reg <= ip_masked;
    tcp_reg <= tcp_masked;
    payload_reg <= payload_masked;
    for (int i = 0; i < CHUNKS; i++) begin
      ip_pairs[i] <= pair(ip_reg[i]);
      tcp_pairs[i] <= pair(tcp_reg[i]);
      payload_pairs[i] <= pair(payload_reg[i]);
    end
    sums_valid <= last_reg[1];
    if (valid_reg[1]) begin
      ip_sum <= ip_total;
      tcp_sum <= tcp_total;
      payload_sum <= payload_total;
    end else if (sums_valid) begin
      ip_sum <= '0;
      tcp_sum <= '0;
      payload_sum <= '0;
    end
    if (rst) begin
      valid_reg <= '0;
      last_reg <= '0;
      sums_valid <= 1'b0;
      ip_sum <= '0;
      tcp_sum <= '0;
      payload_sum <= '0;
    end
  end
endmodule

`resetall
