// SPDX-License-Identifier: MIT OR Apache-2.0
// Egress: reads pieces from the store, one word per cycle; replaces the fields of an aggregate's header as
// they pass; rotates the bytes of each piece to where the last piece ended (section 5's stitcher); and frees
// the pages.
//
// All control information of a word is known with its address, and travels with the word as `word_t`. The
// pipeline never stops; an address is issued only if the output queue has room for all words in flight.
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

    // The metadata and header fields of a packet, ahead of its pieces.
    output logic packet_room,
    input wire packet_valid,
    input wire packet_aggregate,
    input meta_t packet_meta,
    input patch_t packet_patch,

    input wire piece_valid,
    input piece_t piece,
    output logic piece_take,

    output page_t link_of,
    input page_t link,
    output logic free_valid,
    output page_t free_first,
    output page_t free_last,

    // The word of the store, two cycles after its address.
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
  localparam int DEPTH = 16;
  localparam int PACKETS = 16;  // in flight
  localparam int IN_FLIGHT = 8;
  typedef logic [LANE_W-1:0] lane_t;

  typedef struct packed {
    logic valid;
    lane_t rotate;
    lane_t tail;  // bytes of the output word that earlier words have filled
    logic emit;  // completes an output word
    logic last;
    logic left_over;  // emits the left-over bytes, without an input word
    logic keep_all;
    lane_t keep;  // number of bytes of the output word, 0 for all
    logic patch;
    logic v6;
    logic [$clog2(PACKETS)-1:0] bank;  // which patch
    logic [7:0] at;  // position of the word relative to the IP header, in 16-bit words
  } word_t;

  // The piece that is being read.
  logic reading_reg;
  logic freeing_reg;  // its pages are only freed, not read
  page_t first_page_reg, last_page_reg;
  logic finish_reg;
  lane_t lane_reg;  // lane of its first byte in this word
  logic [LANE_W:0] span_reg;  // bytes that the piece has in this word
  logic [LANE_W:0] last_span_reg;  // bytes in its last word
  logic [13:0] words_reg;  // words of the piece after this one
  logic last_reg;  // this is the piece's last word
  logic final_reg;  // and the packet's last word
  logic idle_reg;  // no piece is being read
  page_t page_reg;
  logic [INDEX_W-1:0] index_reg;
  logic page_ends_reg;  // this word is the page's last
  logic stop_reg;  // the next page is not known yet
  logic [1:0] link_wait_reg;  // one-hot: cycles until the page's link is read
  lane_t tail_reg;
  logic flush_reg;

  // The packet's header.
  logic [$clog2(PACKETS)-1:0] bank_reg, bank_next_reg;
  logic [7:0] at_reg;
  logic patch_reg;
  logic v6_reg;

  logic [$clog2(DEPTH):0] queued;
  logic [$clog2(PACKETS):0] metas;
  logic room_reg;

  // Bytes in the output word after this word; the excess goes to the next one.
  logic [LANE_W+1:0] filled;
  logic issue;
  assign filled = (LANE_W + 2)'(tail_reg) + (LANE_W + 2)'(span_reg);
  assign issue = reading_reg && room_reg && !stop_reg;

  wire done = (issue && last_reg) || freeing_reg;
  // A cycle passes between pieces, in which left-over bytes leave.
  wire load = piece_valid && idle_reg;
  assign piece_take = load;
  assign link_of = page_reg;

  word_t word_next;
  logic over;  // bytes are left for another word
  always_comb begin
    over = filled > (LANE_W + 2)'(BYTES);
    word_next = '0;
    word_next.valid = issue;
    word_next.rotate = tail_reg - lane_reg;
    word_next.tail = tail_reg;
    word_next.emit = issue && (filled >= (LANE_W + 2)'(BYTES) || final_reg);
    word_next.last = final_reg && !over;
    word_next.keep_all = filled >= (LANE_W + 2)'(BYTES);
    word_next.keep = filled[LANE_W-1:0];
    word_next.patch = patch_reg && issue;
    word_next.v6 = v6_reg;
    word_next.bank = bank_reg;
    word_next.at = at_reg;
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
    packet_room <= metas < ($bits(metas))'(PACKETS - 3);
    free_valid <= done;
    free_first <= first_page_reg;
    free_last <= last_page_reg;
    flush_reg <= 1'b0;
    link_wait_reg <= link_wait_reg >> 1;
    if (link_wait_reg[0]) stop_reg <= 1'b0;
    if (issue) begin
      lane_reg <= '0;
      span_reg <= words_reg == 14'd1 ? last_span_reg : (LANE_W + 1)'(BYTES);
      words_reg <= words_reg - 14'd1;
      last_reg <= words_reg == 14'd1;
      final_reg <= words_reg == 14'd1 && finish_reg;
      index_reg <= index_reg + 1'b1;
      tail_reg <= filled[LANE_W-1:0];
      at_reg <= at_reg + 8'(BYTES / 2);
      if (at_reg[7:6] == 2'b01) patch_reg <= 1'b0;
      page_ends_reg <= index_reg == INDEX_W'(PAGE_WORDS - 2);
      stop_reg <= index_reg == INDEX_W'(PAGE_WORDS - 2) && words_reg != 14'd1 && link_wait_reg[1];
      if (page_ends_reg) begin
        page_reg <= link;
        link_wait_reg <= 2'b10;
      end
      if (final_reg) begin
        flush_reg <= over;
        if (!over) tail_reg <= '0;
      end
    end
    if (flush_reg) tail_reg <= '0;
    if (done) begin
      reading_reg <= 1'b0;
      freeing_reg <= 1'b0;
      idle_reg <= 1'b1;
    end
    if (load) begin
      reading_reg <= !piece.free_only;
      freeing_reg <= piece.free_only;
      idle_reg <= 1'b0;
      first_page_reg <= piece.first;
      last_page_reg <= piece.last;
      finish_reg <= piece.finish;
      lane_reg <= piece.at[LANE_W-1:0];
      span_reg <= (LANE_W + 1)'(lane_t'(piece.single ? piece.last_lane[LANE_W-1:0] : '1) - piece.at[LANE_W-1:0]) + 1'b1;
      last_span_reg <= (LANE_W + 1)'(piece.last_lane[LANE_W-1:0]) + 1'b1;
      words_reg <= piece.words;
      last_reg <= piece.single;
      final_reg <= piece.single && piece.finish;
      page_reg <= piece.first;
      index_reg <= piece.at[6:LANE_W];
      page_ends_reg <= piece.at[6:LANE_W] == '1;
      stop_reg <= piece.at[6:LANE_W] == '1 && !piece.single;
      link_wait_reg <= 2'b10;
      // The IP header begins at byte 14, or behind the tags.
      at_reg <= 8'd249 - {5'b0, piece.tags, 1'b0};
      patch_reg <= piece.start && piece.aggregate;
      v6_reg <= piece.v6;
      if (piece.start && piece.aggregate) begin
        bank_reg <= bank_next_reg;
        bank_next_reg <= bank_next_reg + 1'b1;
      end
    end
    if (rst) begin
      reading_reg <= 1'b0;
      freeing_reg <= 1'b0;
      idle_reg <= 1'b1;
      free_valid <= 1'b0;
      flush_reg <= 1'b0;
      tail_reg <= '0;
      room_reg <= 1'b0;
      packet_room <= 1'b0;
      bank_next_reg <= '0;
    end
  end
  assign store_addr = {page_reg[STORE_ADDR_W-INDEX_W-1:0], index_reg};

  // Pipeline: the store's two cycles, patch, rotation, merge.
  word_t word_reg[4];
  logic [DATA_W-1:0] patched_reg;
  logic [DATA_W-1:0] rotated_reg;
  logic [DATA_W-1:0] kept_reg;

  always_ff @(posedge clk) begin
    word_reg[0] <= word_next;
    for (int i = 1; i < 4; i++) word_reg[i] <= word_reg[i-1];
    if (rst) for (int i = 0; i < 4; i++) word_reg[i] <= '0;
  end

  // Patches of the packets in flight.
  (* ram_style = "distributed" *)
  logic [$bits(patch_t)-1:0] patches[PACKETS];
  logic [$clog2(PACKETS)-1:0] write_bank_reg;
  patch_t patch_read_reg;

  always_ff @(posedge clk) begin
    if (packet_aggregate) begin
      patches[write_bank_reg] <= packet_patch;
      write_bank_reg <= write_bank_reg + 1'b1;
    end
    patch_read_reg <= patches[word_reg[0].bank];
    if (rst) write_bank_reg <= '0;
  end

  // Which patched field each 16-bit word is, a cycle ahead of the word. The IP header begins at an odd 16-bit
  // word of the frame. So at even words of the frame are the IPv4 length and checksum, the low half of the
  // ACK number and the window; at odd ones are the IPv6 length, the high half of the ACK number and the TCP
  // checksum.
  typedef struct packed {
    logic valid;
    logic [1:0] field;
  } choice_t;
  choice_t [BYTES/2-1:0] choices, choices_reg;

  always_comb begin
    logic [7:0] at;
    at = word_reg[0].at;
    choices = '0;
    for (int half = 0; half < BYTES / 2; half++) begin
      if (half % 2 == 0) begin
        if (at == 8'(1 - half) && !word_reg[0].v6) choices[half] = {1'b1, 2'd0};
        if (at == 8'(5 - half) && !word_reg[0].v6) choices[half] = {1'b1, 2'd1};
        if (at == (word_reg[0].v6 ? 8'(25 - half) : 8'(15 - half))) choices[half] = {1'b1, 2'd2};
        if (at == (word_reg[0].v6 ? 8'(27 - half) : 8'(17 - half))) choices[half] = {1'b1, 2'd3};
      end else begin
        if (at == 8'(2 - half) && word_reg[0].v6) choices[half] = {1'b1, 2'd0};
        if (at == (word_reg[0].v6 ? 8'(24 - half) : 8'(14 - half))) choices[half] = {1'b1, 2'd1};
        if (at == (word_reg[0].v6 ? 8'(28 - half) : 8'(18 - half))) choices[half] = {1'b1, 2'd2};
      end
      if (!word_reg[0].patch) choices[half].valid = 1'b0;
    end
  end

  function automatic logic [15:0] swapped(logic [15:0] field);
    return {field[7:0], field[15:8]};
  endfunction

  logic [DATA_W-1:0] patched;
  logic [3:0][15:0] even_fields, odd_fields;
  assign even_fields = {
    swapped(patch_read_reg.window),
    swapped(patch_read_reg.ack[15:0]),
    swapped(patch_read_reg.ip_checksum),
    swapped(patch_read_reg.ip_len)
  };
  assign odd_fields = {
    16'd0, swapped(patch_read_reg.tcp_checksum), swapped(patch_read_reg.ack[31:16]), swapped(patch_read_reg.ip_len)
  };
  always_comb begin
    patched = store_data;
    for (int half = 0; half < BYTES / 2; half++) begin
      if (choices_reg[half].valid) begin
        patched[16*half+:16] =
            half % 2 == 0 ? even_fields[choices_reg[half].field] : odd_fields[choices_reg[half].field];
      end
    end
  end

  logic [DATA_W-1:0] rotated;
  always_comb begin
    for (int i = 0; i < BYTES; i++) begin
      rotated[8*i+:8] = patched_reg[8*lane_t'(lane_t'(i)-word_reg[2].rotate)+:8];
    end
  end

  // Bytes of the output word that earlier words have filled.
  logic [BYTES-1:0] stays_reg;
  always_ff @(posedge clk) begin
    for (int i = 0; i < BYTES; i++) stays_reg[i] <= lane_t'(i) < word_reg[2].tail || word_reg[2].left_over;
  end

  logic [DATA_W-1:0] merged;
  always_comb begin
    for (int i = 0; i < BYTES; i++) begin
      merged[8*i+:8] = stays_reg[i] ? kept_reg[8*i+:8] : rotated_reg[8*i+:8];
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
    choices_reg <= choices;
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
      .DEPTH(PACKETS)
  ) meta_queue (
      .clk,
      .rst,
      .push(packet_valid),
      .push_data(packet_meta),
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
  assign empty = !reading_reg && !freeing_reg && on_the_way == 0 && queued == 0 && !m_axis_tvalid;
endmodule

`resetall
