// SPDX-License-Identifier: MIT OR Apache-2.0
// Registers on AXI-Lite: configuration, status and counters. The low half of a counter is read first; it latches the high half.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_registers
  import lro_pkg::*;
#(
    parameter int DATA_W = 64,
    parameter int FLOWS = 1,
    parameter int PAGES = 512
) (
    input wire clk,
    input wire rst,

    input wire [11:0] s_axil_awaddr,
    input wire s_axil_awvalid,
    output logic s_axil_awready,
    input wire [31:0] s_axil_wdata,
    input wire [3:0] s_axil_wstrb,
    input wire s_axil_wvalid,
    output logic s_axil_wready,
    output logic [1:0] s_axil_bresp,
    output logic s_axil_bvalid,
    input wire s_axil_bready,
    input wire [11:0] s_axil_araddr,
    input wire s_axil_arvalid,
    output logic s_axil_arready,
    output logic [31:0] s_axil_rdata,
    output logic [1:0] s_axil_rresp,
    output logic s_axil_rvalid,
    input wire s_axil_rready,

    output logic enable,
    output logic pass_bad_checksum,
    output logic drain,
    output logic [31:0] timer_ns,
    output logic [15:0] max_bytes,
    output logic [10:0] max_segments,

    input wire idle,
    input wire ready,
    input wire [4:0] stored,

    output logic read_valid,
    output logic [6:0] read_index,
    input wire read_done,
    input wire [63:0] read_data
);
  logic [11:0] address_reg;
  logic [31:0] high_reg;
  logic busy_reg;

  assign s_axil_bresp = 2'b00;
  assign s_axil_rresp = 2'b00;

  // Whole words are written; a write with other strobes changes nothing.
  wire write = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid && !s_axil_awready;
  always_ff @(posedge clk) begin
    s_axil_awready <= write;
    s_axil_wready  <= write;
    if (s_axil_bready) s_axil_bvalid <= 1'b0;
    if (write) s_axil_bvalid <= 1'b1;
    if (s_axil_awready && s_axil_wstrb == 4'hF) begin
      case (s_axil_awaddr)
        REGISTER_CONTROL: {drain, pass_bad_checksum, enable} <= s_axil_wdata[2:0];
        REGISTER_TIMER_NS: timer_ns <= s_axil_wdata;
        REGISTER_MAX_BYTES: max_bytes <= s_axil_wdata[15:0];
        REGISTER_MAX_SEGMENTS: max_segments <= s_axil_wdata[10:0];
        default: ;
      endcase
    end
    if (rst) begin
      s_axil_awready <= 1'b0;
      s_axil_wready <= 1'b0;
      s_axil_bvalid <= 1'b0;
      {drain, pass_bad_checksum, enable} <= '0;
      timer_ns <= 32'(DEFAULT_TIMER_NS);
      max_bytes <= 16'(DEFAULT_MAX_BYTES);
      max_segments <= 11'(DEFAULT_MAX_SEGMENTS);
    end
  end

  wire is_total = address_reg[11:8] == REGISTER_TOTALS[11:8];
  wire is_reason = address_reg[11:9] == REGISTER_REASONS[11:9];
  wire is_high = address_reg[2];
  wire is_counter = is_total || is_reason;
  assign read_valid = busy_reg && is_counter && !is_high && !s_axil_rvalid;
  assign read_index = {is_total, is_total ? 6'(address_reg[3+:$clog2(TOTALS)]) : address_reg[8:3]};
  assign s_axil_arready = !busy_reg;

  logic [31:0] value;
  logic [31:0] value_reg;
  logic value_valid_reg;
  always_comb begin
    case (address_reg)
      REGISTER_ID: value = ID;
      REGISTER_VERSION: value = VERSION;
      REGISTER_PARAMETERS: value = {8'(FLOWS), 8'd0, 16'(DATA_W)};
      REGISTER_PAGES: value = 32'(PAGES);
      REGISTER_CONTROL: value = {29'd0, drain, pass_bad_checksum, enable};
      REGISTER_STATUS: value = {19'd0, stored, 6'd0, ready, idle};
      REGISTER_TIMER_NS: value = timer_ns;
      REGISTER_MAX_BYTES: value = 32'(max_bytes);
      REGISTER_MAX_SEGMENTS: value = 32'(max_segments);
      default: value = '0;
    endcase
  end

  always_ff @(posedge clk) begin
    if (s_axil_arvalid && s_axil_arready) begin
      address_reg <= s_axil_araddr;
      busy_reg <= 1'b1;
    end
    value_reg <= value;
    value_valid_reg <= busy_reg && !s_axil_rvalid;
    if (busy_reg && !s_axil_rvalid) begin
      if (is_counter && is_high) begin
        s_axil_rdata  <= high_reg;
        s_axil_rvalid <= 1'b1;
      end else if (is_counter) begin
        {high_reg, s_axil_rdata} <= read_data;
        s_axil_rvalid <= read_done;
      end else begin
        s_axil_rdata  <= value_reg;
        s_axil_rvalid <= value_valid_reg;
      end
    end
    if (s_axil_rvalid && s_axil_rready) begin
      s_axil_rvalid <= 1'b0;
      busy_reg <= 1'b0;
    end
    if (rst) begin
      s_axil_rvalid <= 1'b0;
      busy_reg <= 1'b0;
    end
  end
endmodule

`resetall
