// SPDX-License-Identifier: MIT OR Apache-2.0
// Queue in LUT memory with a registered output.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_fifo #(
    parameter int WIDTH = 8,
    parameter int DEPTH = 16  // a power of two; the output register has one more entry
) (
    input wire clk,
    input wire rst,
    input wire push,  // never without room
    input wire [WIDTH-1:0] push_data,
    input wire pop,  // never without `valid`
    output logic valid,
    output logic [WIDTH-1:0] data,
    output logic [$clog2(DEPTH):0] count  // entries in the memory, including one that left it a cycle ago
);
  localparam int ADDR_W = $clog2(DEPTH);

  (* ram_style = "distributed" *)
  logic [WIDTH-1:0] memory[DEPTH];
  logic [ADDR_W-1:0] head_reg;
  logic [ADDR_W-1:0] behind_head_reg;
  logic [ADDR_W-1:0] tail_reg;
  logic filled_reg;  // there is an entry in the memory
  logic refilled_reg;

  // Fills the output register whenever it is empty or read.
  wire refill = filled_reg && (!valid || pop);

  always_ff @(posedge clk) begin
    if (push) begin
      memory[tail_reg] <= push_data;
      tail_reg <= tail_reg + 1'b1;
    end
    if (refill) begin
      data <= memory[head_reg];
      head_reg <= behind_head_reg;
      behind_head_reg <= behind_head_reg + 1'b1;
    end
    filled_reg <= push || (filled_reg && !(refill && behind_head_reg == tail_reg));
    refilled_reg <= refill;
    if (push && !refilled_reg) count <= count + 1'b1;
    if (refilled_reg && !push) count <= count - 1'b1;
    valid <= refill || (valid && !pop);
    if (rst) begin
      head_reg <= '0;
      behind_head_reg <= ADDR_W'(1);
      tail_reg <= '0;
      filled_reg <= 1'b0;
      refilled_reg <= 1'b0;
      count <= '0;
      valid <= 1'b0;
    end
`ifndef SYNTHESIS
    if (push && !rst && count == ($bits(count))'(DEPTH)) $error("a push without room");
`endif
  end
endmodule

`resetall
