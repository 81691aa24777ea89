// SPDX-License-Identifier: MIT OR Apache-2.0
// IPv6 extension headers: their properties, where TCP begins, and whether all headers are within the parser's
// reach of 256 bytes.
//
// Stages: selects the chunk that begins an extension header, which is at most one of two; computes where the
// header ends; evaluates the header.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_extensions
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
    input fields_t fields,

    // Three cycles after the chunks.
    output logic extensions_valid,
    output extensions_t extensions
);
  localparam int CHUNKS = DATA_W / 32;
  localparam int PAIRS = CHUNKS / 2;

  // The last chunk at which a header may end so that the next one is in reach: the first 8 bytes of an
  // extension header, or the 20 bytes of TCP, end within 256 bytes of the frame.
  localparam logic [10:0] REACH_OF_EXTENSION = 11'd62;
  localparam logic [10:0] REACH_OF_TCP = 11'd59;

  logic [6:0] at_reg;  // chunks of the frame before this word
  extension_t [PAIRS-1:0] begun_reg;
  extension_t [PAIRS-1:0] ends_reg;
  logic [1:0] first_reg;
  logic [1:0] last_reg;

  // The end of the IP packet in bytes from the start of the frame, plus the two bytes by which the chunks are
  // shifted.
  logic [17:0] limit_reg;
  extensions_t next;

  chunk_t [PAIRS-1:0] begun;
  always_comb begin
    for (int i = 0; i < PAIRS; i++) begun[i] = chunks[2*i].parts[PART_EXTENSION] ? chunks[2*i] : chunks[2*i+1];
  end

  always_ff @(posedge clk) begin
    if (chunks_valid) at_reg <= chunks_last ? '0 : at_reg + 7'(CHUNKS);
    for (int i = 0; i < PAIRS; i++) begin
      begun_reg[i].valid <= chunks_valid && begun[i].parts[PART_EXTENSION];
      begun_reg[i].kind <= begun[i].kind;
      begun_reg[i].top <= begun[i].top;
      begun_reg[i].offset <= begun[i].offset;
      begun_reg[i].length <= begun[i].data[23:16];
      begun_reg[i].end_ <=
          11'(at_reg) + (chunks[2*i].parts[PART_EXTENSION] ? 11'(2 * i + 2) : 11'(2 * i + 3));

      ends_reg[i] <= begun_reg[i];
      case (begun_reg[i].kind)
        NEXT_FRAGMENT: ends_reg[i].end_ <= begun_reg[i].end_;
        NEXT_AH: ends_reg[i].end_ <= begun_reg[i].end_ + 11'(begun_reg[i].length);
        default: ends_reg[i].end_ <= begun_reg[i].end_ + {2'b00, begun_reg[i].length, 1'b0};
      endcase
    end
    first_reg <= {first_reg[0], chunks_first};
    last_reg <= {last_reg[0], chunks_last};
    limit_reg <= 18'(fields.total) + 18'd16 + 18'({fields.flow.tags, 2'b00});
    extensions_valid <= last_reg[1];
    extensions <= first_reg[1] ? '0 : next;
    if (rst) begin
      at_reg <= '0;
      first_reg <= '0;
      last_reg <= '0;
      extensions_valid <= 1'b0;
    end
  end

  function automatic extensions_t take(extensions_t known, extension_t extension);
    extensions_t after;
    logic later_fragment;
    after = known;
    later_fragment = extension.kind == NEXT_FRAGMENT && extension.offset;
    after.found = 1'b1;
    if (!known.out_of_reach) begin
      if (extension.kind == NEXT_HOP_BY_HOP && known.found) after.malformed = 1'b1;
      if (extension.kind == NEXT_AH && extension.length == 0) after.malformed = 1'b1;
      if ({5'b0, extension.end_, 2'b00} > limit_reg) after.malformed = 1'b1;
    end
    // The content of the header is not read: it may change which bytes the TCP checksum covers.
    if (extension.kind != NEXT_FRAGMENT) after.opaque = 1'b1;
    if (extension.kind == NEXT_FRAGMENT) begin
      after.fragment = 1'b1;
      after.later_fragment = later_fragment;
    end
    if (extension.top == NEXT_TCP) begin
      after.found_tcp = 1'b1;
      after.transport = extension.end_[6:0] - 7'd4 - 7'(fields.flow.tags);
      if (!later_fragment && extension.end_ > REACH_OF_TCP) after.out_of_reach = 1'b1;
    end
    if (is_extension(extension.top) && !later_fragment && extension.end_ > REACH_OF_EXTENSION) after.out_of_reach = 1'b1;
    return after;
  endfunction

  always_comb begin
    next = extensions;
    for (int i = 0; i < PAIRS; i++) if (ends_reg[i].valid) next = take(next, ends_reg[i]);
  end
endmodule

`resetall
