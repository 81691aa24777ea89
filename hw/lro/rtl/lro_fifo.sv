// SPDX-License-Identifier: MIT OR Apache-2.0
// Queue in LUT memory with a registered output.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_fifo #(
    parameter int WIDTH = 8,
    parameter int DEPTH = 16  // power of two; one more entry is in the output register
) (
    input wire clk,
    input wire rst,
    input wire push,  // never without room
    input wire [WIDTH-1:0] push_data,
    input wire pop,  // never without `valid`
    output logic valid,
    output logic [WIDTH-1:0] data,
    output logic [$clog2(DEPTH):0] count  // entries in the memory
);
  localparam int ADDR_W = $clog2(DEPTH);

  (* ram_style = "distributed" *)
  logic [WIDTH-1:0] memory[DEPTH];
  logic [ADDR_W:0] head_reg;  // with a bit more, which tells a full queue from an empty one
  logic [ADDR_W:0] tail_reg;
  assign count = tail_reg - head_reg;
  wire filled = |(tail_reg ^ head_reg);  // sooner than the count

  // The output register is filled whenever it is empty or read.
  wire refill = filled && (!valid || pop);

  always_ff @(posedge clk) begin
    if (push) begin
      memory[tail_reg[ADDR_W-1:0]] <= push_data;
      tail_reg <= tail_reg + 1'b1;
    end
    if (refill) begin
      data <= memory[head_reg[ADDR_W-1:0]];
      head_reg <= head_reg + 1'b1;
    end
    valid <= refill || (valid && !pop);
    if (rst) begin
      head_reg <= '0;
      tail_reg <= '0;
      valid <= 1'b0;
    end
  end
endmodule

`resetall
