// SPDX-License-Identifier: MIT OR Apache-2.0
// Page allocator: a linked list of free pages, and the links between the pages of a frame.
//
// A frame takes pages in the order of the free list, so they are already linked. A link is written only when
// a frame's pages are freed: from the last page of the list to the frame's first page. The last page of the
// list is never allocated, because the next freed frame is linked to it.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_pages
  import lro_types_pkg::*;
#(
    parameter int PAGES = 512
) (
    input wire clk,
    input wire rst,

    // Next free page.
    output logic page_valid,
    output page_t page,
    input wire page_take,

    // The pages of a frame to free.
    input wire free_valid,
    input page_t free_first,
    input page_t free_last,

    // The page behind page `link_of` of a frame, two cycles later.
    input page_t link_of,
    output page_t link,

    output logic ready  // the list is initialized
);
  localparam int ADDR_W = $clog2(PAGES);
  localparam int QUEUE = 4;

  page_t tail_reg;
  page_t walk_reg;  // next page for the queue
  page_t made_reg;
  logic [1:0] wait_reg;  // cycles until the link of `walk_reg` is read

  page_t walk_link;
  logic [$clog2(QUEUE):0] queued;

  wire making = !ready;
  wire write = making || free_valid;
  page_t write_addr;
  page_t write_data;
  assign write_addr = making ? made_reg : tail_reg;
  assign write_data = making ? made_reg + 1'b1 : free_first;

  lro_ram #(
      .WIDTH(PAGE_W),
      .DEPTH(PAGES)
  ) walk_links (
      .clk,
      .write,
      .write_addr(write_addr[ADDR_W-1:0]),
      .write_data,
      .read_addr(walk_reg[ADDR_W-1:0]),
      .read_data(walk_link)
  );

  lro_ram #(
      .WIDTH(PAGE_W),
      .DEPTH(PAGES)
  ) frame_links (
      .clk,
      .write,
      .write_addr(write_addr[ADDR_W-1:0]),
      .write_data,
      .read_addr(link_of[ADDR_W-1:0]),
      .read_data(link)
  );

  // `wait_reg` is not 0 while the walk is at the last page, and for a cycle after. A page that was walked
  // never becomes the last page.
  wire walk = ready && wait_reg == 0 && queued < ($bits(queued))'(QUEUE - 1);

  lro_fifo #(
      .WIDTH(PAGE_W),
      .DEPTH(QUEUE)
  ) queue (
      .clk,
      .rst,
      .push(walk),
      .push_data(walk_reg),
      .pop(page_take),
      .valid(page_valid),
      .data(page),
      .count(queued)
  );

  always_ff @(posedge clk) begin
    if (wait_reg != 0) wait_reg <= wait_reg - 1'b1;
    if (walk) begin
      walk_reg <= walk_link;
      wait_reg <= 2'd3;
    end
    // The last page has no link before the next frame is freed.
    if (walk_reg == tail_reg) wait_reg <= 2'd3;
    if (free_valid) tail_reg <= free_last;
    if (making) begin
      made_reg <= made_reg + 1'b1;
      ready <= made_reg == page_t'(PAGES - 2);
    end
    if (rst) begin
      tail_reg <= page_t'(PAGES - 1);
      walk_reg <= '0;
      made_reg <= '0;
      wait_reg <= 2'd3;
      ready <= 1'b0;
    end
  end
endmodule

`resetall
