// SPDX-License-Identifier: MIT OR Apache-2.0
// What must happen in the simulations beside every line and toggle: each reason that the module gives, and each rotation of a piece.
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
  for (genvar reason = 0; reason < 32; reason++) begin : gen_reason
    wire is_reason = close_valid && close.reason == 5'(reason);
    wire is_free = close.kind == KIND_FREE;
    wire is_pass = close.kind == KIND_PASS;
    flush_ : cover property (@(posedge clk) is_reason && !is_free && !is_pass);
    pass : cover property (@(posedge clk) is_reason && is_pass);
    drop : cover property (@(posedge clk) is_reason && is_free && !close.bad);
  end
endmodule

// A piece begins at lane 0, or behind an Ethernet header at one of every fourth from lane 2 on; the output goes on at any.
module lro_cover_rotations #(
    parameter int LANE_W = 3
) (
    input wire clk,
    input wire issue,
    input wire [LANE_W-1:0] tail_reg,
    input wire [LANE_W-1:0] lane_reg
);
  for (genvar tail = 0; tail < 2 ** LANE_W; tail++) begin : gen_tail
    rotated_0 : cover property (@(posedge clk) issue && tail_reg == LANE_W'(tail) && lane_reg == '0);
    for (genvar lane = 2; lane < 2 ** LANE_W; lane += 4) begin : gen_lane
      rotated : cover property (@(posedge clk) issue && tail_reg == LANE_W'(tail) && lane_reg == LANE_W'(lane));
    end
  end
endmodule

bind lro lro_cover_reasons cover_reasons (.*);
bind lro_egress lro_cover_rotations #(.LANE_W(LANE_W)) cover_rotations (.*);

`resetall
