// SPDX-License-Identifier: MIT OR Apache-2.0
// Parser: the header of a frame, four bytes at a time, as many a cycle as a word has.
//
// The first stage says what each chunk of four bytes is; the second takes the fields from the chunks.
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

    // Chunks with what they are, for the checksums.
    output logic chunks_valid,
    output logic chunks_last,
    output chunk_t [DATA_W/32-1:0] chunks,

    // With `fields_valid`: all that the frame says.
    output logic fields_valid,
    output walk_t walk,
    output fields_t fields
);
  localparam int CHUNKS = DATA_W / 32;

  // First stage: walks over the headers.
  walk_t walk_reg;
  walk_t walk_next;
  chunk_t [CHUNKS-1:0] chunks_next;
  logic chunks_first;

  always_comb begin
    walk_next = word_first ? WALK_START : walk_reg;
    for (int i = 0; i < CHUNKS; i++) begin
      chunks_next[i].data = word[DATA_W-1-32*i-:32];
      chunks_next[i].part = walk_next.part;
      chunks_next[i].index = walk_next.index;
      walk_next = walk_step(walk_next, word[DATA_W-1-32*i-:32]);
    end
  end

  always_ff @(posedge clk) begin
    chunks_valid <= word_valid;
    chunks_last  <= word_valid && word_last;
    chunks_first <= word_first;
    if (word_valid) begin
      walk_reg <= walk_next;
      chunks   <= chunks_next;
    end
    if (rst) begin
      chunks_valid <= 1'b0;
      chunks_last  <= 1'b0;
    end
  end

  // Second stage: fields.
  fields_t fields_next;

  always_comb begin
    fields_next = chunks_first ? '0 : fields;
    for (int i = 0; i < CHUNKS; i++) begin
      fields_next = take_fields(fields_next, chunks[i]);
    end
  end

  always_ff @(posedge clk) begin
    fields_valid <= chunks_last;
    walk <= walk_reg;
    if (chunks_valid) begin
      fields <= fields_next;
    end
    if (rst) fields_valid <= 1'b0;
  end
endmodule

`resetall
