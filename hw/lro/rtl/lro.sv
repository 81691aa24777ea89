// SPDX-License-Identifier: MIT OR Apache-2.0
// Stateless large receive offload in front of a host's receive queue: merges consecutive TCP segments of a
// flow.
//
// The rules are those of crates/lro/src/netfpga.rs; README.md has the block diagram and the registers.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro
  import lro_pkg::*;
  import lro_types_pkg::*;
#(
    // Bits of a word: 64, 128 or 256.
    parameter int DATA_W = 64,
    // Aggregates in the store, 1 to 16.
    parameter int FLOWS = 1,
    // Pages of 128 bytes in the store, a power of two from 128 to 4096.
    parameter int PAGES = 512
) (
    input wire clk,
    input wire rst,

    // Time in ns, which never goes back.
    input wire [63:0] now,

    // `busy`: frames or packets are in the pipeline; stored aggregates do not count. `deadline`: when the
    // timer closes the oldest aggregate.
    output logic busy,
    output logic deadline_valid,
    output logic [63:0] deadline,

    // Frames from the MAC, without FCS. `s_axis_arrival` is sampled with the first word, `s_axis_tuser` (bad
    // frame) with the last.
    input wire [DATA_W-1:0] s_axis_tdata,
    input wire [DATA_W/8-1:0] s_axis_tkeep,
    input wire s_axis_tvalid,
    output logic s_axis_tready,
    input wire s_axis_tlast,
    input wire s_axis_tuser,
    input wire [63:0] s_axis_arrival,

    // Packets for the host; the metadata are valid with each word.
    output logic [DATA_W-1:0] m_axis_tdata,
    output logic [DATA_W/8-1:0] m_axis_tkeep,
    output logic m_axis_tvalid,
    input wire m_axis_tready,
    output logic m_axis_tlast,
    output logic [63:0] m_axis_arrival,  // of the first segment
    output logic [1:0] m_axis_kind,  // 0 passed, 1 a single segment that was held, 2 an aggregate
    output logic [4:0] m_axis_reason,
    output logic [10:0] m_axis_segments,
    output logic [15:0] m_axis_mss,
    output logic [7:0] m_axis_network,  // offsets of headers and payload; for kinds 1 and 2 only
    output logic [7:0] m_axis_transport,
    output logic [7:0] m_axis_payload,

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
    input wire s_axil_rready
);
  localparam int STORE_WORDS = PAGES * PAGE_BYTES / (DATA_W / 8);
  localparam int STORE_ADDR_W = $clog2(STORE_WORDS);

  if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256) $error("DATA_W is 64, 128 or 256");
  if (FLOWS < 1 || FLOWS > 16) $error("FLOWS is 1 to 16");
  if (PAGES < 128 || PAGES > 4096 || (PAGES & (PAGES - 1)) != 0) $error("PAGES is a power of two from 128 to 4096");

  logic enable, pass_bad_checksum, drain, ready;
  logic [31:0] timer_ns;
  logic [15:0] max_bytes;
  logic [10:0] max_segments;

  // Store: one word in and one word out per cycle.
  logic store_write;
  logic [STORE_ADDR_W-1:0] store_write_addr, store_read_addr;
  logic [DATA_W-1:0] store_write_data, store_read_data;
  lro_ram #(
      .WIDTH(DATA_W),
      .DEPTH(STORE_WORDS)
  ) store (
      .clk,
      .write(store_write),
      .write_addr(store_write_addr),
      .write_data(store_write_data),
      .read_addr(store_read_addr),
      .read_data(store_read_data)
  );

  logic page_valid, page_take, has_page;
  page_t page;
  logic free_valid;
  page_t free_first, free_last, link_of, link;
  lro_pages #(
      .PAGES(PAGES)
  ) pages (
      .clk,
      .rst,
      .page_valid,
      .page,
      .page_take,
      .free_valid,
      .free_first,
      .free_last,
      .link_of,
      .link,
      .ready
  );

  logic word_valid, word_first, word_last, frame_bad;
  logic [DATA_W-1:0] word;
  extent_t frame_extent;
  logic [TIME_W-1:0] frame_arrival;
  logic struct_take;
  logic [2:0] frames_reg;  // frames between ingress and decide
  logic [1:0] ended_reg;  // of these, those that have ended: one is held for decide, one behind it
  logic [TIME_W-1:0] now_reg;
  wire quiet = frames_reg == 0;

  always_ff @(posedge clk) begin
    now_reg <= now;
    frames_reg <= frames_reg + 3'(word_first) - 3'(struct_take);
    ended_reg <= ended_reg + 2'(word_valid && word_last) - 2'(struct_take);
    if (rst) begin
      frames_reg <= '0;
      ended_reg  <= '0;
    end
  end

  lro_ingress #(
      .DATA_W(DATA_W),
      .STORE_ADDR_W(STORE_ADDR_W)
  ) ingress (
      .clk,
      .rst,
      .enable,
      .room(ended_reg != 2'd2),
      .s_axis_tdata,
      .s_axis_tkeep,
      .s_axis_tvalid,
      .s_axis_tready,
      .s_axis_tlast,
      .s_axis_tuser,
      .s_axis_arrival,
      .page_valid,
      .page,
      .page_take,
      .has_page,
      .store_write,
      .store_addr(store_write_addr),
      .store_data(store_write_data),
      .word_valid,
      .word_first,
      .word_last,
      .word,
      .extent(frame_extent),
      .arrival(frame_arrival),
      .bad(frame_bad)
  );

  logic chunks_valid, chunks_first, chunks_last, fields_valid;
  lro_parser_pkg::chunk_t [DATA_W/32-1:0] chunks;
  logic [DATA_W/32-1:0][31:0] tcp_data;
  logic [DATA_W/32-1:0] option_valid;
  logic [DATA_W/32-1:0][3:0] option_at;
  lro_parser_pkg::fields_t fields;
  lro_parser_pkg::options_t options;
  lro_parser #(
      .DATA_W(DATA_W)
  ) parser (
      .clk,
      .rst,
      .word_valid,
      .word_first,
      .word_last,
      .word,
      .chunks_valid,
      .chunks_first,
      .chunks_last,
      .chunks,
      .tcp_data,
      .option_valid,
      .option_at,
      .fields_valid,
      .fields
  );
  lro_options #(
      .DATA_W(DATA_W)
  ) tcp_options (
      .clk,
      .rst,
      .tcp_data,
      .option_valid,
      .option_at,
      .options
  );

  logic extensions_valid;
  lro_parser_pkg::extensions_t extensions;
  lro_extensions #(
      .DATA_W(DATA_W)
  ) ip_extensions (
      .clk,
      .rst,
      .chunks_valid,
      .chunks_first,
      .chunks_last,
      .chunks,
      .fields,
      .extensions_valid,
      .extensions
  );

  logic sums_valid;
  logic [lro_parser_pkg::HEADER_SUM_W-1:0] ip_sum, tcp_sum;
  logic [31:0] payload_sum;
  lro_checksum #(
      .DATA_W(DATA_W)
  ) checksum (
      .clk,
      .rst,
      .chunks_valid,
      .chunks_first,
      .chunks_last,
      .chunks,
      .sums_valid,
      .ip_sum,
      .tcp_sum,
      .payload_sum
  );

  logic struct_valid;
  lro_struct_t lro_struct;
  lro_classify classify (
      .clk,
      .rst,
      .pass_bad_checksum,
      .frame_valid(word_valid && word_last),
      .frame_extent,
      .frame_arrival,
      .frame_bad,
      .fields_valid,
      .fields,
      .extensions_valid,
      .extensions,
      .options,
      .sums_valid,
      .ip_sum,
      .tcp_sum,
      .payload_sum,
      .struct_take,
      .struct_valid,
      .lro_struct
  );

  logic taken_valid;
  lro_struct_t taken;
  logic segment_write, next_write;
  page_t segment_page, next_of, next;
  segment_t segment;
  logic close_ready, close_valid;
  close_t close;
  logic [$clog2(FLOWS+1)-1:0] stored;
  logic closer_empty, fetch_empty, egress_empty;
  logic nothing_leaves;
  logic starved_reg;
  logic [4:0] starving_reg;
  logic working;
  // Starved: no page is available, and nothing leaves. The page queue may be empty for a few cycles although
  // there are free pages, and a close clears `nothing_leaves` only two cycles after `working`. So decide
  // closes one aggregate for each 32 cycles without a page.
  always_ff @(posedge clk) begin
    nothing_leaves <= closer_empty && fetch_empty && egress_empty;
    starving_reg <= (ready && !has_page && nothing_leaves && !working) ? starving_reg + 5'd1 : '0;
    starved_reg  <= starving_reg == '1;
    if (rst) starving_reg <= '0;
  end

  lro_decide #(
      .FLOWS(FLOWS)
  ) decide (
      .clk,
      .rst,
      .now(now_reg),
      .timer_ns,
      .max_bytes,
      .max_segments,
      .drain,
      .quiet,
      .starved(starved_reg),
      .struct_valid,
      .struct_in(lro_struct),
      .struct_take,
      .taken_valid,
      .taken,
      .segment_write,
      .segment_page,
      .segment,
      .next_write,
      .next_of,
      .next,
      .close_ready,
      .close_valid,
      .close,
      .stored,
      .working,
      .deadline
  );

  logic order_valid, order_take, counters_room;
  order_t order;
  logic closed_valid;
  close_t closed;
  logic [16:0] closed_len;
  lro_closer closer (
      .clk,
      .rst,
      .counters_room,
      .close_ready,
      .close_valid,
      .close,
      .order_valid,
      .order,
      .order_take,
      .closed_valid,
      .closed,
      .closed_len,
      .empty(closer_empty)
  );

  logic piece_valid, piece_take;
  piece_t piece;
  logic packet_room, packet_valid, packet_aggregate;
  lro_fetch #(
      .DATA_W(DATA_W),
      .PAGES (PAGES)
  ) fetch (
      .clk,
      .rst,
      .segment_write,
      .segment_page,
      .segment,
      .next_write,
      .next_of,
      .next,
      .order_valid,
      .order,
      .order_take,
      .packet_room,
      .packet_valid,
      .packet_aggregate,
      .piece_valid,
      .piece,
      .piece_take,
      .empty(fetch_empty)
  );

  meta_t meta;
  lro_egress #(
      .DATA_W(DATA_W),
      .STORE_ADDR_W(STORE_ADDR_W)
  ) egress (
      .clk,
      .rst,
      .packet_room,
      .packet_valid,
      .packet_aggregate,
      .packet_meta(order.meta),
      .packet_patch(order.patch),
      .piece_valid,
      .piece,
      .piece_take,
      .link_of,
      .link,
      .free_valid,
      .free_first,
      .free_last,
      .store_addr(store_read_addr),
      .store_data(store_read_data),
      .m_axis_tdata,
      .m_axis_tkeep,
      .m_axis_tvalid,
      .m_axis_tready,
      .m_axis_tlast,
      .m_axis_tuser(meta),
      .empty(egress_empty)
  );
  assign m_axis_arrival = meta.arrival;
  assign m_axis_kind = meta.kind;
  assign m_axis_reason = meta.reason;
  assign m_axis_segments = meta.segments;
  assign m_axis_mss = meta.mss;
  assign m_axis_network = meta.network;
  assign m_axis_transport = meta.transport;
  assign m_axis_payload = meta.payload;

  logic read_valid, read_done;
  logic [6:0] read_index;
  logic [63:0] read_data;
  lro_counters counters (
      .clk,
      .rst,
      .taken_valid,
      .taken,
      .closed_valid,
      .closed,
      .closed_len,
      .room(counters_room),
      .read_valid,
      .read_index,
      .read_done,
      .read_data
  );

  // A frame whose first word was taken in the last cycle of `enable` sets `busy` three cycles later.
  logic idle_reg;
  logic [3:0] enabled_reg;
  logic [1:0] settled_reg;
  always_ff @(posedge clk) begin
    enabled_reg <= {enabled_reg[2:0], enable};
    // A decision clears `nothing_leaves` two cycles later.
    busy <= !quiet || working || !settled_reg[0] || !nothing_leaves;
    idle_reg <= !busy && stored == 0 && (enable || enabled_reg == 0);
    deadline_valid <= stored != 0 && settled_reg[1];
    settled_reg <= {settled_reg[0], !working};
  end

  lro_registers #(
      .DATA_W(DATA_W),
      .FLOWS(FLOWS),
      .PAGES(PAGES)
  ) registers (
      .clk,
      .rst,
      .s_axil_awaddr,
      .s_axil_awvalid,
      .s_axil_awready,
      .s_axil_wdata,
      .s_axil_wstrb,
      .s_axil_wvalid,
      .s_axil_wready,
      .s_axil_bresp,
      .s_axil_bvalid,
      .s_axil_bready,
      .s_axil_araddr,
      .s_axil_arvalid,
      .s_axil_arready,
      .s_axil_rdata,
      .s_axil_rresp,
      .s_axil_rvalid,
      .s_axil_rready,
      .enable,
      .pass_bad_checksum,
      .drain,
      .timer_ns,
      .max_bytes,
      .max_segments,
      .idle(idle_reg),
      .ready,
      .stored(5'(stored)),
      .read_valid,
      .read_index,
      .read_done,
      .read_data
  );
endmodule

`resetall
