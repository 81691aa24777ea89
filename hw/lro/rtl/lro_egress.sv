// SPDX-License-Identifier: MIT OR Apache-2.0
// Egress: reads pieces from the store, a word a cycle, writes the fields of an aggregate's header as they pass, rotates the
// bytes of each piece to where the last one ended (section 5's stitcher), and gives the pages back.
//
// What a word needs on its way is known when its address is: `word_t` travels with it. The pipeline never stops; an
// address is issued only where the output queue has room for all that is on its way.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_egress
  import lro_types_pkg::*;
#(
    parameter int DATA_W = 64,
    parameter int STORE_ADDR_W = 13
) (
    input wire clk,
    input wire rst,

    input wire piece_valid,
    input piece_t piece,
    output logic piece_take,

    output page_t link_of,
    input page_t link,
    output logic free_valid,
    output page_t free_first,
    output page_t free_last,

    // The word of the store two cycles after its address.
    output logic [STORE_ADDR_W-1:0] store_addr,
    input wire [DATA_W-1:0] store_data,

    output logic [DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input wire m_axis_tready,
    output logic m_axis_tlast,
    output meta_t m_axis_tuser,

    output logic empty
);
  localparam int BYTES = DATA_W / 8;
  localparam int LANE_W = $clog2(BYTES);
  localparam int PAGE_WORDS = PAGE_BYTES / BYTES;
  localparam int INDEX_W = $clog2(PAGE_WORDS);
  localparam int DEPTH = 32;
  localparam int IN_FLIGHT = 8;
  typedef logic [LANE_W-1:0] lane_t;

  typedef struct packed {
    logic valid;
    lane_t rotate;
    lane_t tail;  // bytes of the output word that are there already
    logic emit;  // completes an output word
    logic last;
    logic left_over;  // an output word of its own follows, without an input word
    logic keep_all;
    lane_t keep;  // bytes of the output word, 0 for all
    logic patch;
    logic bank;  // which of the two patches
    logic [3:0] header;  // place of the word in the frame
  } word_t;

  // The piece that is being read.
  logic active_reg;
  logic first_reg;  // its first word
  piece_t piece_reg;
  page_t page_reg;
  logic [INDEX_W-1:0] index_reg;
  logic [15:0] left_reg;
  logic [1:0] link_wait_reg;
  lane_t tail_reg;
  logic flush_reg;
  logic bank_reg;
  logic [3:0] header_reg;
  logic patch_reg;

  patch_t patches_reg[2];
  logic [6:0] bases_reg[2];  // IP header of the patch's packet, in 16-bit words

  logic [$clog2(DEPTH):0] queued;
  logic [4:0] metas;
  logic room_reg;

  // Bytes that this word has of the piece.
  lane_t lane;
  logic [LANE_W:0] most;
  logic [LANE_W:0] count;
  logic [LANE_W+1:0] filled;
  logic piece_ends;
  logic page_ends;
  logic issue;
  assign lane = first_reg ? piece_reg.at[LANE_W-1:0] : '0;
  assign most = (LANE_W + 1)'(BYTES) - (LANE_W + 1)'(lane);
  assign piece_ends = left_reg <= 16'(most);
  assign count = piece_ends ? left_reg[LANE_W:0] : most;
  assign filled = (LANE_W + 2)'(tail_reg) + (LANE_W + 2)'(count);
  assign page_ends = index_reg == INDEX_W'(PAGE_WORDS - 1);
  assign issue = active_reg && left_reg != 0 && room_reg && !flush_reg && (!page_ends || piece_ends || link_wait_reg == 0);

  wire done = (issue && piece_ends) || (active_reg && left_reg == 0);
  wire load = piece_valid && (!active_reg || done) && metas < 5'd14;
  assign piece_take = load;
  assign link_of = page_reg;

  word_t word_next;
  logic over;  // bytes are left for another word
  always_comb begin
    over = filled > (LANE_W + 2)'(BYTES);
    word_next = '0;
    word_next.valid = issue;
    word_next.rotate = tail_reg - lane;
    word_next.tail = tail_reg;
    word_next.emit = issue && (filled >= (LANE_W + 2)'(BYTES) || (piece_ends && piece_reg.finish));
    word_next.last = piece_ends && piece_reg.finish && !over;
    word_next.keep_all = filled >= (LANE_W + 2)'(BYTES);
    word_next.keep = filled[LANE_W-1:0];
    word_next.patch = patch_reg && issue;
    word_next.bank = bank_reg;
    word_next.header = header_reg;
    if (flush_reg) begin
      word_next = '0;
      word_next.left_over = 1'b1;
      word_next.emit = 1'b1;
      word_next.last = 1'b1;
      word_next.keep = tail_reg;
    end
  end

  always_ff @(posedge clk) begin
    room_reg <= queued < ($bits(queued))'(DEPTH - IN_FLIGHT - 2);
    free_valid <= 1'b0;
    flush_reg <= 1'b0;
    if (link_wait_reg != 0) link_wait_reg <= link_wait_reg - 1'b1;
    if (issue) begin
      first_reg <= 1'b0;
      left_reg <= left_reg - 16'(count);
      index_reg <= index_reg + 1'b1;
      tail_reg <= filled[LANE_W-1:0];
      header_reg <= header_reg + 1'b1;
      if (header_reg == 4'd15) patch_reg <= 1'b0;
      if (page_ends) begin
        page_reg <= link;
        link_wait_reg <= 2'd2;
      end
      if (piece_ends && piece_reg.finish) begin
        flush_reg <= over;
        if (!over) tail_reg <= '0;
      end
    end
    if (flush_reg) tail_reg <= '0;
    if (done) begin
      active_reg <= 1'b0;
      free_valid <= 1'b1;
      free_first <= piece_reg.extent.first;
      free_last  <= piece_reg.extent.last;
    end
    if (load) begin
      active_reg <= 1'b1;
      first_reg <= 1'b1;
      piece_reg <= piece;
      page_reg <= piece.extent.first;
      index_reg <= piece.at[6:LANE_W];
      left_reg <= piece.len;
      link_wait_reg <= 2'd2;
      header_reg <= '0;
      patch_reg <= piece.start && piece.meta.kind == KIND_AGGREGATE;
      if (piece.start && piece.meta.kind == KIND_AGGREGATE) begin
        bank_reg <= !bank_reg;
        patches_reg[!bank_reg] <= piece.patch;
        bases_reg[!bank_reg] <= piece.meta.network[7:1];
      end
    end
    if (rst) begin
      active_reg <= 1'b0;
      flush_reg <= 1'b0;
      tail_reg <= '0;
      room_reg <= 1'b0;
      bank_reg <= 1'b0;
    end
  end
  assign store_addr = {page_reg[STORE_ADDR_W-INDEX_W-1:0], index_reg};

  // On the way: the store's two cycles, patch, rotation, merge.
  word_t word_reg[4];
  logic [DATA_W-1:0] patched_reg;
  logic [DATA_W-1:0] rotated_reg;
  logic [DATA_W-1:0] kept_reg;

  always_ff @(posedge clk) begin
    word_reg[0] <= word_next;
    for (int i = 1; i < 4; i++) word_reg[i] <= word_reg[i-1];
    if (rst) for (int i = 0; i < 4; i++) word_reg[i] <= '0;
  end

  // Header fields, each a number of 16-bit words behind the IP header.
  patch_t patch;
  logic [6:0] base;
  logic [DATA_W-1:0] patched;
  assign patch = patches_reg[word_reg[1].bank];
  assign base  = bases_reg[word_reg[1].bank];

  function automatic logic [15:0] swapped(logic [15:0] field);
    return {field[7:0], field[15:8]};
  endfunction

  always_comb begin
    logic [6:0] at;
    logic [6:0] tcp;
    patched = store_data;
    tcp = patch.v6 ? 7'd20 : 7'd10;
    for (int half = 0; half < BYTES / 2; half++) begin
      at = (7'(word_reg[1].header) << (LANE_W - 1)) + 7'(half) - base;
      if (word_reg[1].patch) begin
        if (at == (patch.v6 ? 7'd2 : 7'd1)) patched[16*half+:16] = swapped(patch.ip_len);
        if (at == 7'd5 && !patch.v6) patched[16*half+:16] = swapped(patch.ip_checksum);
        if (at == tcp + 7'd4) patched[16*half+:16] = swapped(patch.ack[31:16]);
        if (at == tcp + 7'd5) patched[16*half+:16] = swapped(patch.ack[15:0]);
        if (at == tcp + 7'd7) patched[16*half+:16] = swapped(patch.window);
        if (at == tcp + 7'd8) patched[16*half+:16] = swapped(patch.tcp_checksum);
      end
    end
  end

  logic [DATA_W-1:0] rotated;
  always_comb begin
    for (int i = 0; i < BYTES; i++) begin
      rotated[8*i+:8] = patched_reg[8*lane_t'(lane_t'(i)-word_reg[2].rotate)+:8];
    end
  end

  logic [DATA_W-1:0] merged;
  always_comb begin
    for (int i = 0; i < BYTES; i++) begin
      merged[8*i+:8] =
          (lane_t'(i) < word_reg[3].tail || word_reg[3].left_over) ? kept_reg[8*i+:8] : rotated_reg[8*i+:8];
    end
  end

  typedef struct packed {
    logic [DATA_W-1:0] data;
    logic keep_all;
    lane_t keep;
    logic last;
  } out_t;
  out_t out;
  logic out_push_reg;
  out_t out_reg;

  always_ff @(posedge clk) begin
    patched_reg <= patched;
    rotated_reg <= rotated;
    if (word_reg[3].valid) kept_reg <= word_reg[3].keep_all ? rotated_reg : merged;
    out_push_reg <= word_reg[3].emit;
    out_reg.data <= merged;
    out_reg.keep_all <= word_reg[3].keep_all;
    out_reg.keep <= word_reg[3].keep;
    out_reg.last <= word_reg[3].last;
    if (rst) out_push_reg <= 1'b0;
  end

  lro_fifo #(
      .WIDTH($bits(out_t)),
      .DEPTH(DEPTH)
  ) words (
      .clk,
      .rst,
      .push(out_push_reg),
      .push_data(out_reg),
      .pop(m_axis_tvalid && m_axis_tready),
      .valid(m_axis_tvalid),
      .data(out),
      .count(queued)
  );

  logic meta_valid;
  lro_fifo #(
      .WIDTH($bits(meta_t)),
      .DEPTH(16)
  ) meta_queue (
      .clk,
      .rst,
      .push(load && piece.start && piece.meta.kind != KIND_FREE),
      .push_data(piece.meta),
      .pop(m_axis_tvalid && m_axis_tready && m_axis_tlast),
      .valid(meta_valid),
      .data(m_axis_tuser),
      .count(metas)
  );

  assign m_axis_tdata = out.data;
  assign m_axis_tlast = out.last;
  always_comb begin
    for (int i = 0; i < BYTES; i++) m_axis_tkeep[i] = out.keep_all || lane_t'(i) < out.keep;
  end

  logic [5:0] on_the_way;
  assign on_the_way = {word_reg[0].emit, word_reg[1].emit, word_reg[2].emit, word_reg[3].emit, out_push_reg, flush_reg};
  assign empty = !active_reg && on_the_way == 0 && queued == 0 && !m_axis_tvalid;
endmodule

`resetall
