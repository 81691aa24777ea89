// SPDX-License-Identifier: MIT OR Apache-2.0
// Registers on AXI-Lite: configuration, status and counters. The low half of a counter is read first; it
// latches the high half.
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

  // Takes address and data together, and answers a cycle later. Only whole words are written; a write with
  // other strobes changes nothing. The register is decoded a cycle before the write.
  logic whole_reg, control_reg, timer_ns_reg, max_bytes_reg, max_segments_reg;
  wire write = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid && !s_axil_awready;
  always_ff @(posedge clk) begin
    s_axil_awready <= write;
    s_axil_wready  <= write;
    if (s_axil_bready) s_axil_bvalid <= 1'b0;
    if (s_axil_awready) s_axil_bvalid <= 1'b1;
    whole_reg <= s_axil_wstrb == 4'hF;
    control_reg <= s_axil_awaddr == REGISTER_CONTROL;
    timer_ns_reg <= s_axil_awaddr == REGISTER_TIMER_NS;
    max_bytes_reg <= s_axil_awaddr == REGISTER_MAX_BYTES;
    max_segments_reg <= s_axil_awaddr == REGISTER_MAX_SEGMENTS;
    if (s_axil_awready && whole_reg) begin
      if (control_reg) {drain, pass_bad_checksum, enable} <= s_axil_wdata[2:0];
      if (timer_ns_reg) timer_ns <= s_axil_wdata;
      if (max_bytes_reg) max_bytes <= s_axil_wdata[15:0];
      if (max_segments_reg) max_segments <= s_axil_wdata[10:0];
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

  wire is_total = address_reg[11:6] == REGISTER_TOTALS[11:6];
  wire is_reason = address_reg[11:9] == REGISTER_REASONS[11:9];
  wire is_high = address_reg[2];
  wire is_counter = is_total || is_reason;
  assign read_valid = busy_reg && is_counter && !is_high && !s_axil_rvalid;
  assign read_index = {is_total, is_total ? 6'(address_reg[3+:$clog2(TOTALS)]) : address_reg[8:3]};
  assign s_axil_arready = !busy_reg;

  // Decodes the register a cycle after the address, and selects its value a cycle later. No register has two
  // addresses.
  localparam int VALUES = 9;
  logic [VALUES-1:0] chosen_reg;
  logic [VALUES-1:0][31:0] values;
  logic [31:0] value;
  logic [31:0] value_reg;
  logic [1:0] value_valid_reg;
  assign values = {
    ID,
    VERSION,
    {8'(FLOWS), 8'd0, 16'(DATA_W)},
    32'(PAGES),
    {29'd0, drain, pass_bad_checksum, enable},
    {19'd0, stored, 6'd0, ready, idle},
    timer_ns,
    32'(max_bytes),
    32'(max_segments)
  };
  always_comb begin
    value = '0;
    for (int i = 0; i < VALUES; i++) if (chosen_reg[i]) value = value | values[i];
  end

  always_ff @(posedge clk) begin
    if (s_axil_arvalid && s_axil_arready) begin
      address_reg <= s_axil_araddr;
      busy_reg <= 1'b1;
    end
    chosen_reg <= {
      address_reg == REGISTER_ID,
      address_reg == REGISTER_VERSION,
      address_reg == REGISTER_PARAMETERS,
      address_reg == REGISTER_PAGES,
      address_reg == REGISTER_CONTROL,
      address_reg == REGISTER_STATUS,
      address_reg == REGISTER_TIMER_NS,
      address_reg == REGISTER_MAX_BYTES,
      address_reg == REGISTER_MAX_SEGMENTS
    };
    value_reg <= value;
    value_valid_reg <= {value_valid_reg[0], busy_reg && !s_axil_rvalid};
    if (busy_reg && !s_axil_rvalid) begin
      if (is_counter && is_high) begin
        s_axil_rdata  <= high_reg;
        s_axil_rvalid <= 1'b1;
      end else if (is_counter) begin
        {high_reg, s_axil_rdata} <= read_data;
        s_axil_rvalid <= read_done;
      end else begin
        s_axil_rdata  <= value_reg;
        s_axil_rvalid <= value_valid_reg[1];
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
