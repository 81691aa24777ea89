// SPDX-License-Identifier: MIT OR Apache-2.0
// Coverage points beside lines and toggles: each reason that the module gives, and each rotation of a piece.
// Each point is one bit, whose toggles are counted.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_cover_reasons
  import lro_pkg::*;
  import lro_types_pkg::*;
(
    input wire clk,
    input wire close_valid,
    input close_t close
);
  logic [31:0] flushes, passes, drops;  // by reason
  always_ff @(posedge clk) begin
    flushes <= '0;
    passes <= '0;
    drops <= '0;
    if (close_valid) begin
      flushes[close.reason] <= close.kind != KIND_FREE && close.kind != KIND_PASS;
      passes[close.reason] <= close.kind == KIND_PASS;
      drops[close.reason] <= close.kind == KIND_FREE && !close.bad;
    end
  end
endmodule

// Rotations, by the lane at which the output continues and the lane at which a piece begins.
module lro_cover_rotations #(
    parameter int LANE_W = 3
) (
    input wire clk,
    input wire issue,
    input wire [LANE_W-1:0] tail_reg,
    input wire [LANE_W-1:0] lane_reg
);
  localparam int LANES = 2 ** LANE_W;
  logic [LANES-1:0][LANES-1:0] rotations;
  always_ff @(posedge clk) begin
    rotations <= '0;
    if (issue) rotations[tail_reg][lane_reg] <= 1'b1;
  end
endmodule

bind lro lro_cover_reasons cover_reasons (.*);
bind lro_egress lro_cover_rotations #(.LANE_W(LANE_W)) cover_rotations (.*);

`resetall
