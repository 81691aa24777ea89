// SPDX-License-Identifier: MIT OR Apache-2.0
// Ingress: writes frames to the store, and passes them to the parser shifted by two bytes, so that every
// header from the EtherType on begins at a multiple of four bytes.
//
// A frame of W words takes W + 1 cycles: in the last one the parser gets the last two bytes of the shifted
// frame. That cycle waits until the blocks behind have room for the frame.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_ingress
  import lro_types_pkg::*;
#(
    parameter int DATA_W = 64,
    // Minimum number of cycles between the ends of two frames: the time that the blocks behind the parser
    // take.
    parameter int SPACING = 10,
    // Cycles between frames in which no word is taken, so that a frame's TCP options begin after the verdict
    // on the options of the frame before.
    parameter int GAP = DATA_W == 64 ? 0 : 6,
    parameter int STORE_ADDR_W = 13
) (
    input wire clk,
    input wire rst,
    input wire enable,  // a frame may begin
    input wire room,  // a frame may end

    input wire [DATA_W-1:0] s_axis_tdata,
    input wire [DATA_W/8-1:0] s_axis_tkeep,
    input wire s_axis_tvalid,
    output logic s_axis_tready,
    input wire s_axis_tlast,
    input wire s_axis_tuser,  // with the last word: the MAC found the frame bad
    input wire [TIME_W-1:0] s_axis_arrival,  // with the first word, in ns

    input wire page_valid,
    input page_t page,
    output logic page_take,
    output logic has_page,  // for the next word

    output logic store_write,
    output logic [STORE_ADDR_W-1:0] store_addr,
    output logic [DATA_W-1:0] store_data,

    output logic word_valid,
    output logic word_first,
    output logic word_last,
    output logic [DATA_W-1:0] word,  // big endian: the first byte on top
    output extent_t extent,  // valid with `word_last`, like the two below
    output logic [TIME_W-1:0] arrival,
    output logic bad
);
  localparam int BYTES = DATA_W / 8;
  localparam int PAGE_WORDS = PAGE_BYTES / BYTES;
  localparam int INDEX_W = $clog2(PAGE_WORDS);
  localparam int LANE_W = $clog2(BYTES);

  logic in_frame_reg;
  logic flush_reg;
  logic [3:0] spacing_reg;
  logic spaced_reg;  // `spacing_reg` is 0
  logic ready_reg;  // a word may be taken, and there is a page for it
  logic next_valid_reg;
  page_t page_reg;  // of the next word
  page_t next_page_reg;  // the page after `page_reg`
  logic [INDEX_W-1:0] index_reg;
  logic [15-LANE_W:0] words_reg;  // words of the frame before the last word taken
  logic [LANE_W:0] last_bytes_reg;  // bytes of the last word taken
  logic [15:0] kept_reg;  // last two bytes of the word before
  logic [TIME_W-1:0] arrival_reg;  // `s_axis_arrival` of the cycle before

  // Holds two pages, so that refilling them depends on registers only.
  assign s_axis_tready = ready_reg;
  assign page_take = page_valid && !next_valid_reg;
  wire accept = s_axis_tvalid && ready_reg;
  wire page_full = index_reg == INDEX_W'(PAGE_WORDS - 1);
  wire page_ends = accept && (s_axis_tlast || page_full);
  wire flush = flush_reg && spaced_reg && room;

  logic [DATA_W-1:0] big_endian;
  logic [LANE_W:0] kept_bytes;
  always_comb begin
    kept_bytes = '0;
    for (int lane = 0; lane < BYTES; lane++) begin
      big_endian[DATA_W-1-8*lane-:8] = s_axis_tkeep[lane] ? s_axis_tdata[8*lane+:8] : 8'h00;
      kept_bytes += (LANE_W + 1)'(s_axis_tkeep[lane]);
    end
  end

  // Whether the gap continues, and whether a word may come after this cycle.
  wire gap = GAP != 0 && (flush || spacing_reg > 4'(SPACING - GAP));
  logic open_next;
  always_comb begin
    if (flush_reg) open_next = flush && enable && !gap;
    else if (accept) open_next = !s_axis_tlast;
    else open_next = in_frame_reg || (enable && !gap);
  end

  // Registers that matter only with an accepted word are written in every cycle, because `accept` is known
  // late.
  always_ff @(posedge clk) begin
    ready_reg <= open_next && (next_valid_reg || page_valid || (has_page && !page_ends));
    if (page_ends || !has_page) begin
      has_page <= next_valid_reg || page_valid;
      page_reg <= next_valid_reg ? next_page_reg : page;
    end
    next_valid_reg <= (next_valid_reg || page_valid) && has_page && !page_ends;
    if (!next_valid_reg) next_page_reg <= page;

    store_write <= accept;
    store_addr <= {page_reg[STORE_ADDR_W-INDEX_W-1:0], index_reg};
    store_data <= s_axis_tdata;
    flush_reg <= (accept && s_axis_tlast) || (flush_reg && !flush);
    if (flush) spacing_reg <= 4'(SPACING - 1);
    else if (!spaced_reg) spacing_reg <= spacing_reg - 1'b1;
    spaced_reg <= !flush && (spaced_reg || spacing_reg == 4'd1);

    word_valid <= accept || flush;
    word_first <= accept && !in_frame_reg;
    word_last <= flush;
    if (accept) begin
      kept_reg <= big_endian[15:0];
      in_frame_reg <= !s_axis_tlast;
      index_reg <= (s_axis_tlast || page_full) ? '0 : index_reg + 1'b1;
      words_reg <= in_frame_reg ? words_reg + 1'b1 : '0;
      last_bytes_reg <= kept_bytes;
      if (!in_frame_reg) extent.first <= page_reg;
      extent.last <= page_reg;
      bad <= s_axis_tuser;
    end
    if (flush_reg) word <= {kept_reg, (DATA_W - 16)'(0)};
    else word <= {in_frame_reg ? kept_reg : 16'h0000, big_endian[DATA_W-1:16]};
    arrival_reg <= s_axis_arrival;
    if (word_first) arrival <= arrival_reg;
    extent.len <= {words_reg, LANE_W'(0)} + 16'(last_bytes_reg);
    if (rst) begin
      ready_reg <= 1'b0;
      has_page <= 1'b0;
      next_valid_reg <= 1'b0;
      in_frame_reg <= 1'b0;
      flush_reg <= 1'b0;
      spacing_reg <= '0;
      spaced_reg <= 1'b1;
      index_reg <= '0;
      store_write <= 1'b0;
      word_valid <= 1'b0;
    end
  end
endmodule

`resetall
