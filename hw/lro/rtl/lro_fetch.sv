// SPDX-License-Identifier: MIT OR Apache-2.0
// Fetch: turns decisions into the pieces of frames that leave, ahead of the egress.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_fetch
  import lro_types_pkg::*;
#(
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

    output logic piece_valid,
    output piece_t piece,
    input wire piece_take,
    output logic empty
);
  localparam int ADDR_W = $clog2(PAGES);
  localparam int DEPTH = 4;

  segment_t segment_read;
  page_t next_read;
  page_t page_reg;
  logic [10:0] left_reg;
  logic [2:0] wait_reg;  // one-hot: cycles until both memories are read
  logic active_reg;
  logic start_reg;
  logic [$clog2(DEPTH):0] queued;
  order_t order_reg;
  piece_t piece_next;

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

  wire push = active_reg && wait_reg == 0 && queued < ($bits(queued))'(DEPTH - 1);
  wire finish = push && left_reg == 11'd1;
  assign order_take = order_valid && (!active_reg || finish);

  always_comb begin
    piece_next.extent = segment_read.extent;
    piece_next.start = start_reg;
    piece_next.finish = left_reg == 11'd1;
    piece_next.meta = order_reg.meta;
    piece_next.patch = order_reg.patch;
    piece_next.at = '0;
    piece_next.len = segment_read.extent.len;
    if (order_reg.meta.kind == KIND_FREE) piece_next.len = '0;
    if (order_reg.meta.kind == KIND_AGGREGATE) begin
      piece_next.at  = start_reg ? 8'd0 : segment_read.payload_at;
      piece_next.len = segment_read.payload_len + (start_reg ? 16'(segment_read.payload_at) : 16'd0);
    end
  end

  lro_fifo #(
      .WIDTH($bits(piece_t)),
      .DEPTH(DEPTH)
  ) pieces (
      .clk,
      .rst,
      .push,
      .push_data(piece_next),
      .pop(piece_take),
      .valid(piece_valid),
      .data(piece),
      .count(queued)
  );

  always_ff @(posedge clk) begin
    wait_reg <= wait_reg >> 1;
    if (push) begin
      page_reg <= next_read;
      left_reg <= left_reg - 1'b1;
      start_reg <= 1'b0;
      wait_reg <= 3'b010;
      active_reg <= !finish;
    end
    if (order_take) begin
      order_reg <= order;
      page_reg <= order.first;
      left_reg <= order.meta.segments;
      start_reg <= 1'b1;
      active_reg <= 1'b1;
      wait_reg <= 3'b010;
    end
    if (rst) begin
      active_reg <= 1'b0;
      wait_reg <= '0;
    end
  end

  assign empty = !active_reg && queued == 0 && !piece_valid;
endmodule

`resetall
