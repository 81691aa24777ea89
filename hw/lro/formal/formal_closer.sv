// SPDX-License-Identifier: MIT OR Apache-2.0
// Decisions leave in order, with the checksums of arithmetic modulo 65,535.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module formal_closer
  import lro_types_pkg::*;
(
    input wire clk,
    input wire rst,
    input wire counters_room,
    input wire close_valid,
    input wire [1:0] kind,
    input wire [4:0] reason,
    input wire [11:0] page,
    input wire [15:0] bytes,
    input wire [15:0] first_len,
    input wire [7:0] headers_len,
    input wire [15:0] ip_checksum,
    input wire [16:0] tcp_checksum,
    input wire order_take,
    input wire [2:0] chosen  // which decision is followed
);
  logic close_ready, order_valid, closed_valid, empty;
  close_t close, closed;
  order_t order;
  logic [16:0] closed_len;
  always_comb begin
    close = '0;
    close.kind = kind_t'(kind);
    close.reason = reason;
    close.aggregate.first = page;
    close.aggregate.bytes = bytes;
    close.aggregate.first_len = first_len;
    close.aggregate.headers_len = headers_len;
    close.aggregate.ip_checksum = ip_checksum;
    close.aggregate.tcp_checksum = tcp_checksum;
  end

  // A short queue, which is full within the depth of the proof. All decisions in the stages before it, in the
  // queue and in its output register fit into the queue and the register.
  localparam int DEPTH = 8;
  localparam logic [4:0] PLACES = 5'(DEPTH + 1);
  lro_closer #(.DEPTH(DEPTH)) dut (.*);

  logic started_reg = 1'b0;
  logic [2:0] chosen_reg;
  logic [4:0] closed_reg, taken_reg;
  close_t followed_reg;

  always_ff @(posedge clk) begin
    started_reg <= 1'b1;
    chosen_reg  <= chosen;
    if (close_valid) closed_reg <= closed_reg + 1'b1;
    if (order_take) taken_reg <= taken_reg + 1'b1;
    if (close_valid && closed_reg == 5'(chosen)) followed_reg <= close;
    if (rst) begin
      closed_reg <= '0;
      taken_reg  <= '0;
    end
  end

  // Returns true if a value of 16 bits is congruent to a sum modulo 65,535.
  function automatic logic congruent(logic [17:0] sum, logic [15:0] value);
    logic [17:0] wide;
    wide = 18'(value);
    return sum == wide || sum == wide + 18'h0FFFF || sum == wide + 18'h1FFFE;
  endfunction

  // The IPv4 checksum is the one's complement of a sum that is not 0. To subtract a value, the closer adds
  // its one's complement.
  wire [15:0] whole_len = 16'(followed_reg.aggregate.headers_len) + followed_reg.aggregate.bytes;
  wire [15:0] single_len = 16'(followed_reg.aggregate.headers_len) + followed_reg.aggregate.first_len;
  wire [15:0] ip_inverse = ~order.patch.ip_checksum;
  logic [17:0] ip_sum;
  assign ip_sum = 18'(16'(~followed_reg.aggregate.ip_checksum)) + 18'(16'(~single_len)) + 18'(whole_len);

  always_comb begin
    assume (rst == !started_reg);
    if (started_reg) begin
      assume (chosen == chosen_reg);
      assume (!close_valid || close_ready);
      assume (!order_take || order_valid);
      assert (taken_reg + 5'(order_valid) <= closed_reg);
      assert (closed_reg - taken_reg <= PLACES);
      if (order_valid && taken_reg == 5'(chosen)) begin
        assert (order.first == followed_reg.aggregate.first);
        assert (order.meta.kind == followed_reg.kind && order.meta.reason == followed_reg.reason);
        assert (order.patch.ip_len == whole_len);
        assert (congruent(ip_sum, ip_inverse) && (ip_inverse != 0 || ip_sum == 0));
        assert (order.patch.tcp_checksum != 16'hFFFF);
        assert (congruent(18'(followed_reg.aggregate.tcp_checksum), order.patch.tcp_checksum));
      end
    end
  end
endmodule

`resetall
