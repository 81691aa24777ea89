// SPDX-License-Identifier: MIT OR Apache-2.0
// TCP options: reads one chunk per cycle with words of 8 bytes, else two, because each chunk depends on the
// one before it. The verdict on 40 bytes of options is valid at the latest twelve cycles after the frame's
// last word, its counts a cycle later, and stays until the next frame's options begin.
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

    // Chunk j of the TCP header is at place j % CHUNKS; the options begin with chunk 5.
    input wire [DATA_W/32-1:0][31:0] tcp_data,
    input wire [DATA_W/32-1:0] option_valid,
    input wire [DATA_W/32-1:0][3:0] option_at,

    output options_t options
);
  localparam int CHUNKS = DATA_W / 32;
  localparam int CHUNK_W = $clog2(CHUNKS);
  localparam int STEPS = CHUNKS == 2 ? 1 : 2;
  localparam int ADDR_W = 4 - CHUNK_W;
  localparam int FIRST = 5;
  typedef logic [CHUNK_W-1:0] place_t;

  logic [3:0] end_reg;  // the chunk behind the last that has arrived
  logic [3:0] read_reg;
  logic [3:0] arrived;
  logic [3:0] waiting;
  logic begins;
  logic [1:0] begins_reg;
  logic [CHUNKS-1:0][31:0] read_data;
  logic [STEPS-1:0][31:0] next_reg;
  logic [STEPS-1:0] next_valid_reg;
  option_hint_t [STEPS-1:0] hints_reg;
  logic [STEPS-1:0] hints_valid_reg;
  options_t options_next;

  // One memory for each place: chunks that are read together are in different places.
  for (genvar j = 0; j < CHUNKS; j++) begin : gen_places
    (* ram_style = "distributed" *)
    logic [31:0] memory[2**ADDR_W];
    // The first chunk of this place from `read_reg` on.
    logic [4:0] read_at;
    assign read_at = 5'(read_reg) + 5'(CHUNKS - 1 - j);
    assign read_data[j] = memory[read_at[3:CHUNK_W]];
    always_ff @(posedge clk) if (option_valid[j]) memory[option_at[j][3:CHUNK_W]] <= tcp_data[j];
  end

  always_comb begin
    begins = 1'b0;
    arrived = '0;
    for (int j = 0; j < CHUNKS; j++) begin
      if (option_valid[j] && option_at[j] == 4'(FIRST)) begins = 1'b1;
      arrived += 4'(option_valid[j]);
    end
    waiting = end_reg - read_reg;
    options_next = options;
    options_next.nops = options.nops + 6'(options.nops_step);
    options_next.nops_behind = options.nops_behind + 6'(options.behind_step);
    options_next.nops_step = '0;
    options_next.behind_step = '0;
    for (int i = 0; i < STEPS; i++) if (hints_valid_reg[i]) options_next = take_options(options_next, hints_reg[i]);
  end

  always_ff @(posedge clk) begin
    options <= begins_reg[1] ? '0 : options_next;
    begins_reg <= {begins_reg[0], begins};
    for (int i = 0; i < STEPS; i++) begin
      next_reg[i] <= read_data[place_t'(read_reg[CHUNK_W-1:0]+place_t'(i))];
      next_valid_reg[i] <= waiting > 4'(i);
      hints_reg[i] <= option_hint_of(next_reg[i]);
    end
    hints_valid_reg <= next_valid_reg;
    read_reg <= read_reg + (waiting < 4'(STEPS) ? waiting : 4'(STEPS));
    end_reg <= (begins ? 4'(FIRST) : end_reg) + arrived;
    if (begins) begin
      read_reg <= 4'(FIRST);
      next_valid_reg <= '0;
    end
    if (rst) begin
      end_reg  <= 4'(FIRST);
      read_reg <= 4'(FIRST);
      next_valid_reg <= '0;
    end
  end
endmodule

`resetall
