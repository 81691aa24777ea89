// SPDX-License-Identifier: MIT OR Apache-2.0
// No page is allocated twice, none is lost, and the pages of a frame are linked. Frames have one or two
// pages.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module formal_pages
  import lro_types_pkg::*;
(
    input wire clk,
    input wire rst,
    input wire take,
    input wire free,
    input wire free_two,
    input wire [1:0] free_page,
    input wire [1:0] read_page
);
  localparam int PAGES = 4;
  // Maximum number of cycles until a free page is offered.
  localparam int PATIENCE = 9;

  logic page_valid, ready;
  page_t page, link;
  logic [1:0] free_end;
  wire page_take = take && page_valid;

  logic started_reg = 1'b0;
  logic [PAGES-1:0] out_reg;
  logic [PAGES-1:0] linked_reg;  // the page that follows is known
  logic [PAGES-1:0][1:0] behind_reg;
  logic [1:0] last_reg;
  logic any_reg;
  logic [3:0] waited_reg;
  logic [2:0][1:0] read_reg;
  logic [2:0] still_reg;  // for so many cycles, the page was allocated and its link known

  assign free_end = free_two ? behind_reg[free_page] : free_page;

  lro_pages #(
      .PAGES(PAGES)
  ) dut (
      .clk,
      .rst,
      .page_valid,
      .page,
      .page_take,
      .free_valid(free),
      .free_first(page_t'(free_page)),
      .free_last(page_t'(free_end)),
      .link_of(page_t'(read_page)),
      .link,
      .ready
  );

  always_ff @(posedge clk) begin
    started_reg <= 1'b1;
    if (page_take) begin
      out_reg[page[1:0]] <= 1'b1;
      linked_reg[page[1:0]] <= 1'b0;
      last_reg <= page[1:0];
      any_reg <= 1'b1;
      if (any_reg && out_reg[last_reg]) begin
        behind_reg[last_reg] <= page[1:0];
        linked_reg[last_reg] <= 1'b1;
      end
    end
    if (free) begin
      out_reg[free_page] <= 1'b0;
      out_reg[free_end] <= 1'b0;
      linked_reg[free_page] <= 1'b0;
      linked_reg[free_end] <= 1'b0;
    end
    waited_reg <= (ready && !page_valid && !free && $countones(out_reg) < PAGES - 1) ? waited_reg + 1'b1 : '0;
    read_reg   <= {read_reg[1:0], read_page};
    still_reg  <= {still_reg[1:0], linked_reg[read_page] && out_reg[behind_reg[read_page]]};
    if (rst) begin
      out_reg <= '0;
      linked_reg <= '0;
      any_reg <= 1'b0;
      waited_reg <= '0;
      still_reg <= '0;
    end
  end

  always_comb begin
    assume (rst == !started_reg);
    if (started_reg) begin
      if (free) begin
        assume (ready && out_reg[free_page]);
        if (free_two) assume (linked_reg[free_page] && out_reg[free_end] && free_end != free_page);
      end
      if (page_valid) assert (!out_reg[page[1:0]] && page < page_t'(PAGES));
      assert (waited_reg < 4'(PATIENCE));
      if (still_reg[1:0] == 2'b11 && linked_reg[read_reg[1]] && read_reg[1] == read_reg[0]) begin
        assert (link[1:0] == behind_reg[read_reg[1]]);
      end
    end
  end
endmodule

`resetall
