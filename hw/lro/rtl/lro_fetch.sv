// SPDX-License-Identifier: MIT OR Apache-2.0
// Fetch: turns decisions into pieces of frames, ahead of the egress, and passes on the metadata and header
// fields of each packet.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_fetch
  import lro_types_pkg::*;
#(
    parameter int DATA_W = 64,
    parameter int PAGES = 512
) (
    input wire clk,
    input wire rst,

    input wire segment_write,
    input page_t segment_page,
    input segment_t segment,
    input wire next_write,
    input page_t next_of,
    input page_t next,

    input wire order_valid,
    input order_t order,
    output logic order_take,

    // With the decision, ahead of the pieces.
    input wire packet_room,
    output logic packet_valid,
    output logic packet_aggregate,

    output logic piece_valid,
    output piece_t piece,
    input wire piece_take,
    output logic empty
);
  localparam int ADDR_W = $clog2(PAGES);
  localparam int DEPTH = 8;
  localparam int LANE_W = $clog2(DATA_W / 8);

  segment_t segment_read;
  page_t next_read;
  page_t page_reg;
  logic [10:0] left_reg;
  logic [1:0] wait_reg;  // one-hot: cycles until both memories are read
  logic read_reg;  // both are read
  logic active_reg;
  logic start_reg;
  logic [$clog2(DEPTH):0] queued;
  kind_t kind_reg;
  logic [1:0] tags_reg;
  logic v6_reg;

  lro_ram #(
      .WIDTH($bits(segment_t)),
      .DEPTH(PAGES)
  ) segments (
      .clk,
      .write(segment_write),
      .write_addr(segment_page[ADDR_W-1:0]),
      .write_data(segment),
      .read_addr(page_reg[ADDR_W-1:0]),
      .read_data(segment_read)
  );

  lro_ram #(
      .WIDTH(PAGE_W),
      .DEPTH(PAGES)
  ) nexts (
      .clk,
      .write(next_write),
      .write_addr(next_of[ADDR_W-1:0]),
      .write_data(next),
      .read_addr(page_reg[ADDR_W-1:0]),
      .read_data(next_read)
  );

  logic room_reg;
  logic final_reg;  // one piece is left
  wire push = read_reg && room_reg;
  assign packet_valid = order_take && order.meta.kind != KIND_FREE;
  assign packet_aggregate = order_take && order.meta.kind == KIND_AGGREGATE;

  // First stage: the bytes of the piece. Second: the words that contain them.
  piece_t part, part_reg, piece_reg;
  logic push_reg, push_reg2;
  logic [7:0] at;
  logic [7:0] bytes_before;
  logic [15:0] len_reg;  // bytes of the frame or of the payload
  logic [8:0] before_reg;  // bytes before those that `len_reg` counts, from the start of the first word, less one
  logic [16:0] last_byte;  // from the start of the first word

  always_comb begin
    part = '0;
    at = (kind_reg == KIND_AGGREGATE && !start_reg) ? segment_read.payload_at : 8'd0;
    part.first = segment_read.extent.first;
    part.last = segment_read.extent.last;
    part.free_only = kind_reg == KIND_FREE;
    part.at = at[6:0];
    part.start = start_reg;
    part.finish = final_reg;
    part.aggregate = kind_reg == KIND_AGGREGATE;
    part.tags = tags_reg;
    part.v6 = v6_reg;
    bytes_before = (start_reg && kind_reg == KIND_AGGREGATE) ? segment_read.payload_at : 8'(at[LANE_W-1:0]);
    last_byte = 17'(len_reg) + 17'(signed'(before_reg));
  end

  always_ff @(posedge clk) begin
    part_reg <= part;
    len_reg <= kind_reg == KIND_AGGREGATE ? segment_read.payload_len : segment_read.extent.len;
    before_reg <= 9'(bytes_before) - 9'd1;
    push_reg <= push;

    piece_reg <= part_reg;
    piece_reg.words <= 14'(last_byte[16:LANE_W]);
    piece_reg.last_lane <= 5'(last_byte[LANE_W-1:0]);
    piece_reg.single <= last_byte[16:LANE_W] == 0;
    push_reg2 <= push_reg;
    if (rst) begin
      push_reg  <= 1'b0;
      push_reg2 <= 1'b0;
    end
  end

  lro_fifo #(
      .WIDTH($bits(piece_t)),
      .DEPTH(DEPTH)
  ) pieces (
      .clk,
      .rst,
      .push(push_reg2),
      .push_data(piece_reg),
      .pop(piece_take),
      .valid(piece_valid),
      .data(piece),
      .count(queued)
  );

  always_ff @(posedge clk) begin
    room_reg <= queued < ($bits(queued))'(DEPTH - 4);
    order_take <= order_valid && packet_room && !active_reg && !order_take;
    wait_reg <= wait_reg >> 1;
    read_reg <= wait_reg[0] || (read_reg && !push);
    if (push) begin
      page_reg <= next_read;
      left_reg <= left_reg - 1'b1;
      final_reg <= left_reg == 11'd2;
      start_reg <= 1'b0;
      if (final_reg) active_reg <= 1'b0;
      else wait_reg <= 2'b10;
    end
    if (order_take) begin
      kind_reg <= order.meta.kind;
      tags_reg <= order.tags;
      v6_reg <= order.patch.v6;
      page_reg <= order.first;
      left_reg <= order.meta.segments;
      final_reg <= order.meta.kind != KIND_AGGREGATE;
      start_reg <= 1'b1;
      active_reg <= 1'b1;
      wait_reg <= 2'b10;
    end
    if (rst) begin
      order_take <= 1'b0;
      active_reg <= 1'b0;
      wait_reg <= '0;
      read_reg <= 1'b0;
    end
  end

  assign empty = !active_reg && !push_reg && !push_reg2 && queued == 0 && !piece_valid;
endmodule

`resetall
