// SPDX-License-Identifier: MIT OR Apache-2.0
// TCP options: half as many chunks a cycle as arrive, so that a chunk has a cycle of its own. The verdict on 40 bytes of options
// is there seven cycles after their last word; it stays until the next frame's options begin.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_options
  import lro_parser_pkg::*;
#(
    parameter int DATA_W = 64
) (
    input wire clk,
    input wire rst,

    input wire chunks_valid,
    input chunk_t [DATA_W/32-1:0] chunks,

    output options_t options
);
  localparam int CHUNKS = DATA_W / 32;
  localparam int STEPS = CHUNKS / 2;
  localparam int MOST = 10;

  logic [31:0] pending_reg[MOST+STEPS];
  logic [3:0] arrived_reg;
  logic [3:0] read_reg;
  logic [STEPS-1:0][31:0] next_reg;
  logic [STEPS-1:0] next_valid_reg;
  options_t options_next;
  logic begins;
  logic [3:0] waiting;
  assign waiting = arrived_reg - read_reg;

  always_comb begin
    begins = 1'b0;
    for (int i = 0; i < CHUNKS; i++) begin
      if (chunks_valid && chunks[i].part == PART_OPTIONS && chunks[i].index == 4'd0) begins = 1'b1;
    end
    options_next = options;
    for (int i = 0; i < STEPS; i++) if (next_valid_reg[i]) options_next = take_options(options_next, next_reg[i]);
  end

  always_ff @(posedge clk) begin
    options <= options_next;
    for (int i = 0; i < STEPS; i++) begin
      next_reg[i] <= pending_reg[read_reg+4'(i)];
      next_valid_reg[i] <= waiting > 4'(i);
    end
    read_reg <= read_reg + (waiting < 4'(STEPS) ? waiting : 4'(STEPS));
    for (int i = 0; i < CHUNKS; i++) begin
      if (chunks_valid && chunks[i].part == PART_OPTIONS) begin
        pending_reg[chunks[i].index] <= chunks[i].data;
        arrived_reg <= chunks[i].index + 4'd1;
      end
    end
    if (begins) begin
      options <= '0;
      read_reg <= '0;
      next_valid_reg <= '0;
    end
    if (rst) begin
      arrived_reg <= '0;
      read_reg <= '0;
      next_valid_reg <= '0;
    end
  end
endmodule

`resetall
