// SPDX-License-Identifier: MIT OR Apache-2.0
// Closer: completes the header of an aggregate (lengths, IPv4 and TCP checksum), and queues the decisions in
// order.
//
// Updates both checksums incrementally (RFC 1624, equation 3): to subtract a value, adds its one's
// complement.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_closer
  import lro_types_pkg::*;
#(
    // Depth of the queue of decisions.
    parameter int DEPTH = 16
) (
    input wire clk,
    input wire rst,

    input wire counters_room,
    output logic close_ready,
    input wire close_valid,
    input close_t close,

    output logic order_valid,
    output order_t order,
    input wire order_take,

    // For the counters.
    output logic closed_valid,
    output close_t closed,
    output logic [16:0] closed_len,  // bytes of the packet
    output logic empty
);
  localparam int STAGES = 4;

  logic [$clog2(DEPTH):0] queued;
  close_t [STAGES-1:0] close_reg;
  logic [STAGES-1:0] valid_reg;

  // First stage: the decision. Second: the IP length of the aggregate.
  logic [15:0] ip_len_reg;
  logic [15:0] first_ip_len_reg;
  // Third and fourth: the checksums, each folded twice.
  logic [17:0] ip_sum_reg;
  logic [16:0] tcp_fold_reg;
  logic [16:0] ip_fold_reg;
  logic [15:0] tcp_checksum_reg;
  logic [15:0] ip_len_reg2;
  logic [15:0] ip_len_reg3;
  order_t order_next;
  logic [15:0] ip_folded;
  logic [15:0] network;

  always_ff @(posedge clk) begin
    close_reg <= {close_reg[STAGES-2:0], close};
    valid_reg <= {valid_reg[STAGES-2:0], close_valid};
    close_ready <= counters_room && queued < ($bits(queued))'(DEPTH - STAGES - 2);

    ip_len_reg <= 16'(close_reg[0].aggregate.headers_len) + close_reg[0].aggregate.bytes;
    first_ip_len_reg <= 16'(close_reg[0].aggregate.headers_len) + close_reg[0].aggregate.first_len;

    ip_sum_reg <= {2'b00, ~close_reg[1].aggregate.ip_checksum} + {2'b00, ~first_ip_len_reg} + 18'(ip_len_reg);
    tcp_fold_reg <= 17'(close_reg[1].aggregate.tcp_checksum[15:0]) + 17'(close_reg[1].aggregate.tcp_checksum[16]);
    ip_len_reg2 <= ip_len_reg;

    ip_fold_reg <= 17'(ip_sum_reg[15:0]) + 17'(ip_sum_reg[17:16]);
    tcp_checksum_reg <= tcp_fold_reg[15:0] + 16'(tcp_fold_reg[16]);
    ip_len_reg3 <= ip_len_reg2;
    if (rst) begin
      valid_reg <= '0;
      close_ready <= 1'b0;
    end
  end

  assign ip_folded = ip_fold_reg[15:0] + 16'(ip_fold_reg[16]);
  assign network = 16'd14 + {12'b0, close_reg[3].aggregate.tags, 2'b00};

  // A checksum is never 0xFFFF: the sum of the bytes that it covers is never 0.
  always_comb begin
    order_next = '0;
    order_next.first = close_reg[3].aggregate.first;
    order_next.tags = close_reg[3].aggregate.tags;
    order_next.meta.arrival = close_reg[3].aggregate.arrival;
    order_next.meta.kind = close_reg[3].kind;
    order_next.meta.reason = close_reg[3].reason;
    order_next.meta.segments = close_reg[3].kind == KIND_AGGREGATE ? close_reg[3].aggregate.count : 11'd1;
    order_next.meta.mss = close_reg[3].aggregate.mss;
    order_next.meta.network = network[7:0];
    order_next.meta.transport = network[7:0] + (close_reg[3].aggregate.v6 ? 8'd40 : 8'd20);
    order_next.meta.payload = close_reg[3].aggregate.payload_at;
    order_next.patch.v6 = close_reg[3].aggregate.v6;
    order_next.patch.ip_len = ip_len_reg3 - (close_reg[3].aggregate.v6 ? 16'd40 : 16'd0);
    order_next.patch.ip_checksum = ~ip_folded;
    order_next.patch.ack = close_reg[3].aggregate.ack;
    order_next.patch.window = close_reg[3].aggregate.window;
    order_next.patch.tcp_checksum = tcp_checksum_reg == 16'hFFFF ? 16'h0000 : tcp_checksum_reg;
  end

  lro_fifo #(
      .WIDTH($bits(order_t)),
      .DEPTH(DEPTH)
  ) orders (
      .clk,
      .rst,
      .push(valid_reg[3]),
      .push_data(order_next),
      .pop(order_take),
      .valid(order_valid),
      .data(order),
      .count(queued)
  );

  // Registered, because the counters are placed far away.
  always_ff @(posedge clk) begin
    closed_valid <= valid_reg[3];
    closed <= close_reg[3];
    closed_len <= close_reg[3].kind == KIND_AGGREGATE ? 17'(ip_len_reg3) + 17'(network) : 17'(close_reg[3].aggregate.frame_len);
    if (rst) closed_valid <= 1'b0;
  end

  assign empty = valid_reg == '0 && !closed_valid && queued == 0 && !order_valid;
endmodule

`resetall
