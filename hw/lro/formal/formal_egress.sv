// SPDX-License-Identifier: MIT OR Apache-2.0
// Compares the stitcher with a model of bytes: the byte at each position of the output is the one that the
// pieces put there, and packets end where pieces end them. An output word is stable until it is taken.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module formal_egress
  import lro_types_pkg::*;
(
    input wire clk,
    input wire rst,
    input wire piece_valid,
    input wire first,
    input wire [6:0] at,
    input wire [3:0] len,  // of the piece, less one
    input wire finish,
    input wire [5:0] chosen,  // which byte of the output is followed
    input wire m_axis_tready
);
  localparam int DATA_W = 64;
  localparam int STORE_ADDR_W = 5;  // two pages, so that eight bits identify each byte
  typedef logic [6:0] place_t;

  logic packet_room, piece_take, free_valid, m_axis_tvalid, m_axis_tlast, empty;
  page_t link_of, link, free_first, free_last;
  logic [STORE_ADDR_W-1:0] store_addr;
  logic [DATA_W-1:0] store_data, m_axis_tdata;
  logic [7:0] m_axis_tkeep;
  meta_t m_axis_tuser;

  logic started_reg = 1'b0;
  logic start_reg;  // the next piece starts a packet
  logic [5:0] chosen_reg;
  place_t taken_reg;  // bytes of the pieces so far
  place_t given_reg;  // bytes that left
  logic [7:0] source_reg;  // where the chosen byte lies in the store
  logic ends_reg;  // it is the last of a packet
  logic [1:0][STORE_ADDR_W-1:0] addr_reg;
  logic [1:0] link_reg;

  wire [7:0] last_byte = 8'(at[2:0]) + 8'(len);
  piece_t piece;
  always_comb begin
    piece = '0;
    piece.first = page_t'(first);
    piece.last = page_t'(first);
    piece.at = at;
    piece.words = 14'(last_byte[7:3]);
    piece.last_lane = 5'(last_byte[2:0]);
    piece.single = last_byte[7:3] == 0;
    piece.start = start_reg;
    piece.finish = finish;
  end

  lro_egress #(
      .DATA_W(DATA_W),
      .STORE_ADDR_W(STORE_ADDR_W)
  ) dut (
      .packet_valid(piece_take && start_reg),
      .packet_aggregate(1'b0),
      .packet_meta('0),
      .packet_patch('0),
      .*
  );

  // Each of the two pages links to the other; the value of each byte of the store is its address.
  assign link = page_t'(link_reg[1]);
  always_comb begin
    for (int i = 0; i < 8; i++) store_data[8*i+:8] = {addr_reg[1], 3'(i)};
  end

  wire place_t behind = place_t'(chosen) - taken_reg;  // where the chosen byte is in the piece
  wire fire = m_axis_tvalid && m_axis_tready;
  logic [3:0] kept;
  assign kept = 4'($countones(m_axis_tkeep));

  always_ff @(posedge clk) begin
    started_reg <= 1'b1;
    chosen_reg <= chosen;
    addr_reg <= {addr_reg[0], store_addr};
    link_reg <= {link_reg[0], !link_of[0]};
    if (piece_take) begin
      start_reg <= finish;
      taken_reg <= taken_reg + place_t'(len) + 7'd1;
      if (behind <= place_t'(len)) begin
        source_reg <= {first, at} + 8'(behind);
        ends_reg   <= finish && behind == place_t'(len);
      end
    end
    if (fire) given_reg <= given_reg + place_t'(kept);
    if (rst) begin
      start_reg <= 1'b1;
      taken_reg <= '0;
      given_reg <= '0;
    end
  end

  // The output a cycle ago, if it was not taken.
  logic held_reg, held_last_reg;
  logic [DATA_W-1:0] held_data_reg;
  logic [7:0] held_keep_reg;
  always_ff @(posedge clk) begin
    held_reg <= m_axis_tvalid && !m_axis_tready && !rst;
    held_data_reg <= m_axis_tdata;
    held_keep_reg <= m_axis_tkeep;
    held_last_reg <= m_axis_tlast;
  end

  always_comb begin
    assume (rst == !started_reg);
    if (started_reg) begin
      assume (chosen == chosen_reg);
      assume (!piece_take || taken_reg < 7'd24);
      // Pieces begin in the last two words of a page, so that most continue on the next page.
      assume (at[6:4] == '1);
      if (held_reg) begin
        assert (m_axis_tvalid && m_axis_tdata == held_data_reg);
        assert (m_axis_tkeep == held_keep_reg && m_axis_tlast == held_last_reg);
      end
      if (m_axis_tvalid) begin
        assert (kept != 0 && (m_axis_tkeep & (m_axis_tkeep + 8'd1)) == 0);
        assert (m_axis_tlast || kept == 4'd8);
        assert (given_reg + place_t'(kept) <= taken_reg);
        for (int i = 0; i < 8; i++) begin
          if (m_axis_tkeep[i] && given_reg + place_t'(i) == place_t'(chosen)) begin
            assert (m_axis_tdata[8*i+:8] == source_reg);
            assert (ends_reg == (m_axis_tlast && kept == 4'(i + 1)));
          end
        end
      end
    end
  end
endmodule

`resetall
