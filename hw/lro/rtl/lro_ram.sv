// SPDX-License-Identifier: MIT OR Apache-2.0
// Block memory: one write port, one read port, the output two cycles after the address.
//
// A word that is read while it is written is undefined (simulation inverts it), and no block uses one. A
// memory of up to 512 words consists of slices of 18 bits, because neither Yosys nor `synthesize.py` uses the
// output register of a wider ECP5 block.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_ram #(
    parameter int WIDTH = 64,
    parameter int DEPTH = 512
) (
    input wire clk,
    input wire write,
    input wire [$clog2(DEPTH)-1:0] write_addr,
    input wire [WIDTH-1:0] write_data,
    input wire [$clog2(DEPTH)-1:0] read_addr,
    output logic [WIDTH-1:0] read_data
);
  localparam int SLICE_W = DEPTH > 512 ? WIDTH : 18;
  localparam int SLICES = (WIDTH + SLICE_W - 1) / SLICE_W;

  for (genvar i = 0; i < SLICES; i++) begin : gen_slices
    localparam int FIRST = i * SLICE_W;
    localparam int BITS = FIRST + SLICE_W > WIDTH ? WIDTH - FIRST : SLICE_W;
    (* ram_style = "block", no_rw_check *)
    logic [BITS-1:0] memory[DEPTH];
    logic [BITS-1:0] word_reg;

    always_ff @(posedge clk) begin
      if (write) memory[write_addr] <= write_data[FIRST+:BITS];
      word_reg <= memory[read_addr];
`ifndef SYNTHESIS
      if (write && write_addr == read_addr) word_reg <= ~memory[read_addr];
`endif
      read_data[FIRST+:BITS] <= word_reg;
    end
  end
endmodule

`resetall
