// SPDX-License-Identifier: MIT OR Apache-2.0
// The module with few pins, for place and route: every port is registered; inputs are shifted in, outputs folded.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_board #(
    parameter int FLOWS = 1,
    parameter int PAGES = 512
) (
    input wire clk,
    input wire in,
    output logic out
);
  localparam int DATA_W = 64;
  localparam int INPUTS = 1 + 64 + DATA_W + DATA_W / 8 + 3 + 64 + 1 + 12 + 1 + 32 + 4 + 1 + 1 + 12 + 1 + 1;
  localparam int OUTPUTS = 1 + 1 + 64 + 1 + DATA_W + DATA_W / 8 + 2 + 64 + 2 + 5 + 11 + 16 + 24 + 1 + 1 + 2 + 1 + 1 + 32 + 2 + 1;

  logic [INPUTS-1:0] inputs_reg;
  logic [OUTPUTS-1:0] outputs, outputs_reg;
  logic [OUTPUTS/8:0] folded_reg;
  logic [OUTPUTS/64:0] folded_again_reg;

  always_ff @(posedge clk) begin
    inputs_reg <= {inputs_reg[INPUTS-2:0], in};
    outputs_reg <= outputs;
    for (int i = 0; i <= OUTPUTS / 8; i++) folded_reg[i] <= ^8'(outputs_reg >> (8 * i));
    for (int i = 0; i <= OUTPUTS / 64; i++) folded_again_reg[i] <= ^8'(folded_reg >> (8 * i));
    out <= ^folded_again_reg;
  end

  lro #(
      .DATA_W(DATA_W),
      .FLOWS (FLOWS),
      .PAGES (PAGES)
  ) dut (
      .clk,
      .rst(inputs_reg[0]),
      .now(inputs_reg[1+:64]),
      .s_axis_tdata(inputs_reg[65+:64]),
      .s_axis_tkeep(inputs_reg[129+:8]),
      .s_axis_tvalid(inputs_reg[137]),
      .s_axis_tlast(inputs_reg[138]),
      .s_axis_tuser(inputs_reg[139]),
      .s_axis_arrival(inputs_reg[140+:64]),
      .m_axis_tready(inputs_reg[204]),
      .s_axil_awaddr(inputs_reg[205+:12]),
      .s_axil_awvalid(inputs_reg[217]),
      .s_axil_wdata(inputs_reg[218+:32]),
      .s_axil_wstrb(inputs_reg[250+:4]),
      .s_axil_wvalid(inputs_reg[254]),
      .s_axil_bready(inputs_reg[255]),
      .s_axil_araddr(inputs_reg[256+:12]),
      .s_axil_arvalid(inputs_reg[268]),
      .s_axil_rready(inputs_reg[269]),
      .busy(outputs[0]),
      .deadline_valid(outputs[1]),
      .deadline(outputs[2+:64]),
      .s_axis_tready(outputs[66]),
      .m_axis_tdata(outputs[67+:64]),
      .m_axis_tkeep(outputs[131+:8]),
      .m_axis_tvalid(outputs[139]),
      .m_axis_tlast(outputs[140]),
      .m_axis_arrival(outputs[141+:64]),
      .m_axis_kind(outputs[205+:2]),
      .m_axis_reason(outputs[207+:5]),
      .m_axis_segments(outputs[212+:11]),
      .m_axis_mss(outputs[223+:16]),
      .m_axis_network(outputs[239+:8]),
      .m_axis_transport(outputs[247+:8]),
      .m_axis_payload(outputs[255+:8]),
      .s_axil_awready(outputs[263]),
      .s_axil_wready(outputs[264]),
      .s_axil_bresp(outputs[265+:2]),
      .s_axil_bvalid(outputs[267]),
      .s_axil_arready(outputs[268]),
      .s_axil_rdata(outputs[269+:32]),
      .s_axil_rresp(outputs[301+:2]),
      .s_axil_rvalid(outputs[303])
  );
endmodule

`resetall
