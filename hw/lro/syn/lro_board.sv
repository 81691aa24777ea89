// SPDX-License-Identifier: MIT OR Apache-2.0
// The module with few pins, for place and route: registers every port, shifts the inputs in, and folds the
// outputs. The data words come last, because their width is a parameter.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_board #(
    parameter int DATA_W = 64,
    parameter int FLOWS = 1,
    parameter int PAGES = 512
) (
    input wire clk,
    input wire in,
    output logic out
);
  localparam int OTHER_INPUTS = 198;
  localparam int OTHER_OUTPUTS = 232;
  localparam int INPUTS = OTHER_INPUTS + DATA_W + DATA_W / 8;
  localparam int OUTPUTS = OTHER_OUTPUTS + DATA_W + DATA_W / 8;

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
      .s_axis_tvalid(inputs_reg[65]),
      .s_axis_tlast(inputs_reg[66]),
      .s_axis_tuser(inputs_reg[67]),
      .s_axis_arrival(inputs_reg[68+:64]),
      .m_axis_tready(inputs_reg[132]),
      .s_axil_awaddr(inputs_reg[133+:12]),
      .s_axil_awvalid(inputs_reg[145]),
      .s_axil_wdata(inputs_reg[146+:32]),
      .s_axil_wstrb(inputs_reg[178+:4]),
      .s_axil_wvalid(inputs_reg[182]),
      .s_axil_bready(inputs_reg[183]),
      .s_axil_araddr(inputs_reg[184+:12]),
      .s_axil_arvalid(inputs_reg[196]),
      .s_axil_rready(inputs_reg[197]),
      .s_axis_tdata(inputs_reg[OTHER_INPUTS+:DATA_W]),
      .s_axis_tkeep(inputs_reg[OTHER_INPUTS+DATA_W+:DATA_W/8]),
      .busy(outputs[0]),
      .deadline_valid(outputs[1]),
      .deadline(outputs[2+:64]),
      .s_axis_tready(outputs[66]),
      .m_axis_tvalid(outputs[67]),
      .m_axis_tlast(outputs[68]),
      .m_axis_arrival(outputs[69+:64]),
      .m_axis_kind(outputs[133+:2]),
      .m_axis_reason(outputs[135+:5]),
      .m_axis_segments(outputs[140+:11]),
      .m_axis_mss(outputs[151+:16]),
      .m_axis_network(outputs[167+:8]),
      .m_axis_transport(outputs[175+:8]),
      .m_axis_payload(outputs[183+:8]),
      .s_axil_awready(outputs[191]),
      .s_axil_wready(outputs[192]),
      .s_axil_bresp(outputs[193+:2]),
      .s_axil_bvalid(outputs[195]),
      .s_axil_arready(outputs[196]),
      .s_axil_rdata(outputs[197+:32]),
      .s_axil_rresp(outputs[229+:2]),
      .s_axil_rvalid(outputs[231]),
      .m_axis_tdata(outputs[OTHER_OUTPUTS+:DATA_W]),
      .m_axis_tkeep(outputs[OTHER_OUTPUTS+DATA_W+:DATA_W/8])
  );
endmodule

`resetall
