// SPDX-License-Identifier: MIT OR Apache-2.0
// Computes the sums of the IPv4 header, of the TCP header with the addresses, and of the payload.
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
    input wire chunks_first,
    input wire chunks_last,
    input chunk_t [DATA_W/32-1:0] chunks,

    // Sums of a frame, not folded: four cycles after its last chunks, `payload_sum` a cycle later. `tcp_sum`
    // lacks the protocol and the length of the pseudo-header.
    output logic sums_valid,
    output logic [HEADER_SUM_W-1:0] ip_sum,
    output logic [HEADER_SUM_W-1:0] tcp_sum,
    output logic [31:0] payload_sum
);
  localparam int CHUNKS = DATA_W / 32;
  localparam int BYTES = DATA_W / 8;
  localparam int BYTE_W = $clog2(BYTES);
  localparam int WORD_SUM_W = 16 + $clog2(CHUNKS) + 1;
  localparam int BEFORE_W = $clog2(36 + 4 * CHUNKS);

  // Number of bytes of the IP packet from the word in `payload_chunks_reg` on. That register is a cycle
  // behind the chunks, because the payload may begin in the word after the one with the packet's length.
  logic begins_reg;
  logic [17:0] begins_left_reg;
  logic [17:0] left_reg;
  logic [17:0] left_next;
  logic whole_reg;  // the word is within the packet
  chunk_t [CHUNKS-1:0] payload_chunks_reg;
  logic [CHUNKS-1:0][31:0] ip_masked;
  logic [CHUNKS-1:0][31:0] tcp_masked;
  logic [CHUNKS-1:0][31:0] payload_masked;

  // The length field of the IP header, and the bytes from the start of the word that it does not count: those
  // before the IP header, and an IPv6 header's own.
  logic begins;
  logic [15:0] length;
  logic [BEFORE_W-1:0] before_length;
  always_comb begin
    begins = 1'b0;
    length = '0;
    before_length = '0;
    for (int i = 0; i < CHUNKS; i++) begin
      if (chunks[i].length4 || chunks[i].length6) begins = 1'b1;
      if (chunks[i].length4) begin
        length = length | chunks[i].data[15:0];
        before_length = before_length | BEFORE_W'(4 * i);
      end
      if (chunks[i].length6) begin
        length = length | chunks[i].data[31:16];
        before_length = before_length | BEFORE_W'(36 + 4 * i);
      end
    end
  end

  assign left_next = begins_reg ? begins_left_reg : left_reg;

  always_ff @(posedge clk) begin
    if (chunks_valid) begin
      begins_reg <= begins;
      begins_left_reg <= 18'(length) + 18'(before_length);
      // Both count from the word before.
      left_reg  <= left_next < 18'(BYTES) ? '0 : left_next - 18'(BYTES);
      whole_reg <= left_next >= 18'(2 * BYTES);
    end
    payload_chunks_reg <= chunks;
    if (rst) begins_reg <= 1'b0;
  end

  always_comb begin
    for (int i = 0; i < CHUNKS; i++) begin
      ip_masked[i] = chunks[i].parts[PART_IPV4] ? chunks[i].data : '0;
      tcp_masked[i] = chunks[i].tcp_sum ? chunks[i].data : '0;
      for (int j = 0; j < 4; j++) begin
        payload_masked[i][31-8*j-:8] =
            payload_chunks_reg[i].parts[PART_PAYLOAD] && (whole_reg || BYTE_W'(4 * i + j) < left_reg[BYTE_W-1:0]) ?
            payload_chunks_reg[i].data[31-8*j-:8] : 8'h00;
      end
    end
  end

  // Sums of each chunk, then of the word, then of the frame.
  logic [3:0] valid_reg;
  logic [3:0] first_reg;
  logic [2:0] last_reg;
  logic [CHUNKS-1:0][31:0] ip_reg, tcp_reg, payload_reg;
  logic [CHUNKS-1:0][16:0] ip_pairs, tcp_pairs, payload_pairs;
  logic [WORD_SUM_W-1:0] ip_word, tcp_word, payload_word;
  logic [WORD_SUM_W-1:0] ip_word_reg, tcp_word_reg, payload_word_reg;

  function automatic logic [16:0] pair(logic [31:0] data);
    return 17'(data[31:16]) + 17'(data[15:0]);
  endfunction

  always_comb begin
    ip_word = '0;
    tcp_word = '0;
    payload_word = '0;
    for (int i = 0; i < CHUNKS; i++) begin
      ip_word += WORD_SUM_W'(ip_pairs[i]);
      tcp_word += WORD_SUM_W'(tcp_pairs[i]);
      payload_word += WORD_SUM_W'(payload_pairs[i]);
    end
  end

  always_ff @(posedge clk) begin
    valid_reg <= {valid_reg[2:0], chunks_valid};
    first_reg <= {first_reg[2:0], chunks_first};
    last_reg <= {last_reg[1:0], chunks_last};
    ip_reg <= ip_masked;
    tcp_reg <= tcp_masked;
    payload_reg <= payload_masked;
    for (int i = 0; i < CHUNKS; i++) begin
      ip_pairs[i] <= pair(ip_reg[i]);
      tcp_pairs[i] <= pair(tcp_reg[i]);
      payload_pairs[i] <= pair(payload_reg[i]);
    end
    ip_word_reg <= ip_word;
    tcp_word_reg <= tcp_word;
    payload_word_reg <= payload_word;
    sums_valid <= last_reg[2];
    if (valid_reg[2]) begin
      ip_sum  <= (first_reg[2] ? '0 : ip_sum) + HEADER_SUM_W'(ip_word_reg);
      tcp_sum <= (first_reg[2] ? '0 : tcp_sum) + HEADER_SUM_W'(tcp_word_reg);
    end
    if (valid_reg[3]) payload_sum <= (first_reg[3] ? '0 : payload_sum) + 32'(payload_word_reg);
    if (rst) begin
      valid_reg <= '0;
      last_reg <= '0;
      sums_valid <= 1'b0;
    end
  end
endmodule

`resetall
