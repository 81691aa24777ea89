// SPDX-License-Identifier: MIT OR Apache-2.0
// The queue keeps the order of its entries, and `count` is their number, including one that left the memory a
// cycle ago.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module formal_fifo (
    input wire clk,
    input wire rst,
    input wire push,
    input wire [3:0] push_data,
    input wire pop,
    input wire [3:0] chosen  // which entry is followed
);
  localparam int DEPTH = 4;

  logic valid;
  logic [3:0] data;
  logic [2:0] count;
  lro_fifo #(
      .WIDTH(4),
      .DEPTH(DEPTH)
  ) dut (.*);

  logic started_reg = 1'b0;
  logic [3:0] chosen_reg;
  logic [3:0] pushed_reg, popped_reg;
  logic [3:0] unread_reg;  // entries that were not in the output register a cycle ago
  logic [3:0] arrived_reg;  // pushes a cycle ago
  logic [3:0] followed_reg;

  always_ff @(posedge clk) begin
    started_reg <= 1'b1;
    chosen_reg  <= chosen;
    arrived_reg <= pushed_reg;
    unread_reg <= pushed_reg - popped_reg - 4'(valid) + 4'(push);
    if (push) pushed_reg <= pushed_reg + 1'b1;
    if (pop) popped_reg <= popped_reg + 1'b1;
    if (push && pushed_reg == chosen) followed_reg <= push_data;
    if (rst) begin
      pushed_reg  <= '0;
      popped_reg  <= '0;
      arrived_reg <= '0;
      unread_reg  <= '0;
    end
  end

  always_comb begin
    assume (rst == !started_reg);
    if (started_reg) begin
      assume (chosen == chosen_reg);
      assume (!push || count != 3'(DEPTH));
      assume (!pop || valid);
      assert (4'(count) == unread_reg);
      assert (valid || arrived_reg == popped_reg);
      if (valid && popped_reg == chosen && pushed_reg < 4'd15) assert (data == followed_reg);
    end
  end
endmodule

`resetall
