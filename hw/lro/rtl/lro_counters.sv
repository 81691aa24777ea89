// SPDX-License-Identifier: MIT OR Apache-2.0
// Counters of 64 bits. Entries with additions wait in two queues; the block begins one addition per cycle.
// One memory has the lower bits of all counters, another the upper bits.
//
// A frame that is taken adds to three totals. A packet that is closed adds to a reason and three totals, an
// aggregate to a reason and five. A register read waits until the entries that were queued when it began are
// added. Then no addition begins until the read is answered: at most 17 cycles, in which two or three frames
// arrive.
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
    input wire [16:0] closed_len,

    // True if the queue has room for the packets that may be on their way to it.
    output logic room,

    // Reads a counter: a reason's or, with the top bit of the index, a total. `read_valid` is held until
    // `read_done`.
    input wire read_valid,
    input wire [6:0] read_index,
    output logic read_done,
    output logic [63:0] read_data
);
  localparam int DEPTH = 16;
  localparam int SPARE = 8;

  typedef struct packed {
    logic era;
    logic [15:0] len;
    logic [15:0] payload_len;
  } in_t;

  typedef struct packed {
    logic era;
    logic [5:0] reason;
    logic is_packet;
    logic is_aggregate;
    logic [16:0] len;
    logic [15:0] payload_len;
    logic [10:0] segments;
  } out_t;

  typedef struct packed {
    logic valid;
    logic [6:0] index;
    logic [16:0] step;
  } addition_t;

  in_t in_next, in;
  out_t out_next, out;
  logic in_valid, in_take, out_valid, out_take;
  logic [$clog2(DEPTH):0] ins, outs;

  // The era changes when a read begins: an entry of the other era was queued before the read.
  logic era_reg;
  logic [1:0] read_reg;  // bit 0: a read waits; both: for two cycles, after which all earlier entries are visible
  logic read_begins;
  logic is_before;
  logic hold_reg;  // no addition begins
  assign read_begins = read_valid && !read_reg[0] && !read_done;
  assign is_before = (in_valid && in.era != era_reg) || (out_valid && out.era != era_reg);

  always_ff @(posedge clk) begin
    era_reg  <= era_reg ^ read_begins;
    read_reg <= {read_reg[0], read_valid} & {2{!read_done}};
    hold_reg <= read_reg == '1 && !is_before;
    if (rst) begin
      era_reg  <= 1'b0;
      read_reg <= '0;
      hold_reg <= 1'b0;
    end
  end

  always_comb begin
    in_next.era = era_reg;
    out_next.era = era_reg;
    in_next.len = taken.extent.len;
    in_next.payload_len = taken.payload_len;
    case (closed.kind)
      KIND_PASS: out_next.reason = COUNTER_PASS + 6'(closed.reason);
      KIND_FREE: out_next.reason = closed.bad ? COUNTER_BAD_FRAMES : COUNTER_DROP + 6'(closed.reason);
      default: out_next.reason = COUNTER_FLUSH + 6'(closed.reason);
    endcase
    out_next.is_packet = closed.kind != KIND_FREE;
    out_next.is_aggregate = closed.kind == KIND_AGGREGATE;
    out_next.len = closed_len;
    out_next.payload_len = closed.aggregate.bytes;
    out_next.segments = closed.aggregate.count;
  end

  lro_fifo #(
      .WIDTH($bits(in_t)),
      .DEPTH(DEPTH)
  ) in_queue (
      .clk,
      .rst,
      .push(taken_valid && taken.class_ != CLASS_BAD),
      .push_data(in_next),
      .pop(in_take),
      .valid(in_valid),
      .data(in),
      .count(ins)
  );

  lro_fifo #(
      .WIDTH($bits(out_t)),
      .DEPTH(DEPTH)
  ) out_queue (
      .clk,
      .rst,
      .push(closed_valid),
      .push_data(out_next),
      .pop(out_take),
      .valid(out_valid),
      .data(out),
      .count(outs)
  );

  // Additions follow each other. The same counter comes again at the earliest when its last addition is
  // written.
  localparam int IN_STEPS = 3;
  localparam int OUT_STEPS = 6;
  logic clearing_reg;
  logic [6:0] clear_reg;
  logic in_turn_reg;  // an entry of this queue is being added
  logic out_turn_reg;
  logic [2:0] step_reg;
  logic last_reg;  // this is the last step of the entry
  addition_t next;
  assign in_take  = in_turn_reg && last_reg;
  assign out_take = out_turn_reg && last_reg;

  always_comb begin
    next = '0;
    if (in_turn_reg) begin
      case (step_reg)
        3'd0: next = '{1'b1, {1'b1, 6'(TOTAL_PACKETS_IN)}, 17'd1};
        3'd1: next = '{1'b1, {1'b1, 6'(TOTAL_BYTES_IN)}, 17'(in.len)};
        3'd2: next = '{1'b1, {1'b1, 6'(TOTAL_PAYLOAD_BYTES_IN)}, 17'(in.payload_len)};
        default: ;
      endcase
    end
    if (out_turn_reg) begin
      case (step_reg)
        3'd0: next = '{1'b1, {1'b0, out.reason}, 17'd1};
        3'd1: next = '{out.is_packet, {1'b1, 6'(TOTAL_PACKETS_OUT)}, 17'd1};
        3'd2: next = '{out.is_packet, {1'b1, 6'(TOTAL_BYTES_OUT)}, out.len};
        3'd3: next = '{out.is_packet, {1'b1, 6'(TOTAL_PAYLOAD_BYTES_OUT)}, 17'(out.payload_len)};
        3'd4: next = '{1'b1, {1'b1, 6'(TOTAL_AGGREGATES)}, 17'd1};
        default: next = '{1'b1, {1'b1, 6'(TOTAL_SEGMENTS_AGGREGATED)}, 17'(out.segments)};
      endcase
    end
  end

  always_ff @(posedge clk) begin
    room <= outs < ($bits(outs))'(DEPTH - SPARE);
    step_reg <= (in_turn_reg || out_turn_reg) && !last_reg ? step_reg + 3'd1 : '0;
    last_reg <= !last_reg && step_reg == (out_turn_reg && out.is_aggregate ? 3'(OUT_STEPS - 2) : 3'(IN_STEPS - 1));
    if (!in_turn_reg && !out_turn_reg) begin
      out_turn_reg <= out_valid && !clearing_reg && !hold_reg;
      in_turn_reg  <= in_valid && !out_valid && !clearing_reg && !hold_reg;
    end else if (last_reg) begin
      // The other queue next, if it has an entry.
      out_turn_reg <= in_turn_reg && out_valid && !hold_reg;
      in_turn_reg  <= out_turn_reg && in_valid && !hold_reg;
    end
    if (rst) begin
      room <= 1'b0;
      step_reg <= '0;
      last_reg <= 1'b0;
      in_turn_reg <= 1'b0;
      out_turn_reg <= 1'b0;
    end
  end

  // Pipeline: address, two cycles of the memory, sum, write. The upper bits follow a cycle later, with the
  // carry.
  localparam int LOW_W = 18;
  localparam int HIGH_W = 64 - LOW_W;
  addition_t additions_reg[5];
  logic [LOW_W:0] low_sum_reg;
  logic [HIGH_W-1:0] high_sum_reg;
  logic [6:0] read_addr;
  logic [6:0] high_read_addr_reg;
  logic [2:0] settled_reg;
  logic idle_reg;
  logic [4:0] on_the_way;
  assign read_addr = additions_reg[0].valid ? additions_reg[0].index : read_index;

  always_comb for (int i = 0; i < 5; i++) on_the_way[i] = additions_reg[i].valid;

  lro_ram #(
      .WIDTH(LOW_W),
      .DEPTH(128)
  ) low_counts (
      .clk,
      .write(clearing_reg || additions_reg[3].valid),
      .write_addr(clearing_reg ? clear_reg : additions_reg[3].index),
      .write_data(clearing_reg ? LOW_W'(0) : low_sum_reg[LOW_W-1:0]),
      .read_addr,
      .read_data(read_data[LOW_W-1:0])
  );

  lro_ram #(
      .WIDTH(HIGH_W),
      .DEPTH(128)
  ) high_counts (
      .clk,
      .write(clearing_reg || additions_reg[4].valid),
      .write_addr(clearing_reg ? clear_reg : additions_reg[4].index),
      .write_data(clearing_reg ? HIGH_W'(0) : high_sum_reg),
      .read_addr(high_read_addr_reg),
      .read_data(read_data[63:LOW_W])
  );

  always_ff @(posedge clk) begin
    additions_reg[0] <= next;
    for (int i = 1; i < 5; i++) additions_reg[i] <= additions_reg[i-1];
    low_sum_reg <= (LOW_W + 1)'(read_data[LOW_W-1:0]) + (LOW_W + 1)'(additions_reg[2].step);
    high_read_addr_reg <= read_addr;
    high_sum_reg <= read_data[63:LOW_W] + HIGH_W'(low_sum_reg[LOW_W]);
    idle_reg <= hold_reg && !clearing_reg && !in_turn_reg && !out_turn_reg;
    settled_reg <= (read_reg[0] && idle_reg && on_the_way == 0) ? {settled_reg[1:0], 1'b1} : '0;
    read_done <= settled_reg == 3'b011;
    if (clearing_reg) clear_reg <= clear_reg + 1'b1;
    if (clear_reg == '1) clearing_reg <= 1'b0;
    if (rst) begin
      clearing_reg <= 1'b1;
      clear_reg <= '0;
      for (int i = 0; i < 5; i++) additions_reg[i].valid <= 1'b0;
      idle_reg <= 1'b0;
      settled_reg <= '0;
      read_done <= 1'b0;
    end
  end
endmodule

`resetall
