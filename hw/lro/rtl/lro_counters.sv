// SPDX-License-Identifier: MIT OR Apache-2.0
// Counters: totals in registers, one per reason in a memory, all of 64 bits.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_counters
  import lro_pkg::*;
  import lro_types_pkg::*;
(
    input wire clk,
    input wire rst,

    input wire taken_valid,
    input lro_struct_t taken,
    input wire closed_valid,
    input close_t closed,
    input wire [15:0] closed_len,

    output logic [TOTALS-1:0][63:0] totals,

    // Reads a reason's counter: `read_valid` is held until `read_done`.
    input wire read_valid,
    input wire [5:0] read_index,
    output logic read_done,
    output logic [63:0] read_data
);
  typedef enum logic [2:0] {
    STATE_CLEAR,
    STATE_IDLE,
    STATE_ADDRESS,
    STATE_WAIT,
    STATE_ADD
  } state_t;

  state_t state_reg;
  logic reading_reg;
  logic [5:0] index_reg;
  logic event_valid;
  logic [5:0] event_index;
  logic [5:0] event_next;
  logic [4:0] queued;
  logic [63:0] count;
  wire write = state_reg == STATE_CLEAR || (state_reg == STATE_ADD && !reading_reg);
  wire take = state_reg == STATE_IDLE && event_valid;

  always_comb begin
    case (closed.kind)
      KIND_PASS: event_next = COUNTER_PASS + 6'(closed.reason);
      KIND_FREE: event_next = closed.bad ? COUNTER_BAD_FRAMES : COUNTER_DROP + 6'(closed.reason);
      default: event_next = COUNTER_FLUSH + 6'(closed.reason);
    endcase
  end

  lro_fifo #(
      .WIDTH(6),
      .DEPTH(16)
  ) events (
      .clk,
      .rst,
      .push(closed_valid),
      .push_data(event_next),
      .pop(take),
      .valid(event_valid),
      .data(event_index),
      .count(queued)
  );

  lro_ram #(
      .WIDTH(64),
      .DEPTH(64)
  ) reasons (
      .clk,
      .write,
      .write_addr(index_reg),
      .write_data(state_reg == STATE_CLEAR ? 64'd0 : count + 64'd1),
      .read_addr(index_reg),
      .read_data(count)
  );

  assign read_data = count;
  assign read_done = state_reg == STATE_ADD && reading_reg;

  always_ff @(posedge clk) begin
    case (state_reg)
      STATE_CLEAR: begin
        index_reg <= index_reg + 1'b1;
        if (index_reg == 6'd63) state_reg <= STATE_IDLE;
      end
      STATE_IDLE: begin
        reading_reg <= !event_valid;
        index_reg <= event_valid ? event_index : read_index;
        if (event_valid || (read_valid && !read_done)) state_reg <= STATE_ADDRESS;
      end
      STATE_ADDRESS: state_reg <= STATE_WAIT;
      STATE_WAIT: state_reg <= STATE_ADD;
      default: state_reg <= STATE_IDLE;
    endcase
    if (rst) begin
      state_reg <= STATE_CLEAR;
      index_reg <= '0;
    end
  end

  // Registered first: a sum of 64 bits takes a cycle.
  logic [TOTALS-1:0][15:0] step_reg;
  wire out = closed_valid && closed.kind != KIND_FREE;
  wire aggregate = closed_valid && closed.kind == KIND_AGGREGATE;
  wire in = taken_valid && taken.class_ != CLASS_BAD;

  always_ff @(posedge clk) begin
    step_reg[TOTAL_PACKETS_IN] <= 16'(in);
    step_reg[TOTAL_BYTES_IN] <= in ? taken.extent.len : '0;
    step_reg[TOTAL_PAYLOAD_BYTES_IN] <= in ? taken.payload_len : '0;
    step_reg[TOTAL_PACKETS_OUT] <= 16'(out);
    step_reg[TOTAL_BYTES_OUT] <= out ? closed_len : '0;
    step_reg[TOTAL_PAYLOAD_BYTES_OUT] <= out ? closed.aggregate.bytes : '0;
    step_reg[TOTAL_AGGREGATES] <= 16'(aggregate);
    step_reg[TOTAL_SEGMENTS_AGGREGATED] <= aggregate ? 16'(closed.aggregate.count) : '0;
    for (int i = 0; i < TOTALS; i++) totals[i] <= totals[i] + 64'(step_reg[i]);
    if (rst) begin
      step_reg <= '0;
      totals   <= '0;
    end
  end
endmodule

`resetall
