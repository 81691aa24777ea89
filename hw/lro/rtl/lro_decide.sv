// SPDX-License-Identifier: MIT OR Apache-2.0
// Decide: the flow table, the rule of the store block (Figure 7), and the timer. The twin of
// crates/lro/src/netfpga.rs.
//
// A frame that joins an aggregate takes nine cycles, and one more if that closes the aggregate. All
// comparisons are registered; keys are compared in parts, whose results are combined a cycle later. Signals
// by which a state enables many registers are registered, too.
`resetall
`timescale 1ns / 1ps
`default_nettype none

module lro_decide
  import lro_pkg::*;
  import lro_types_pkg::*;
#(
    parameter int FLOWS = 1
) (
    input wire clk,
    input wire rst,

    input wire [TIME_W-1:0] now,
    input wire [31:0] timer_ns,
    input wire [15:0] max_bytes,
    input wire [10:0] max_segments,
    input wire drain,  // level: close everything once no frame is on its way
    input wire quiet,  // no frame is on its way
    input wire starved,  // no page is left, and nothing is on its way out

    input wire struct_valid,
    input lro_struct_t struct_in,
    output logic struct_take,

    // The frame that was taken, a cycle after `struct_take`.
    output logic taken_valid,
    output lro_struct_t taken,

    // For fetch: `segment` is the position of the frame's payload; `next` is the frame behind `next_of` in an
    // aggregate.
    output logic segment_write,
    output page_t segment_page,
    output segment_t segment,
    output logic next_write,
    output page_t next_of,
    output page_t next,

    input wire close_ready,
    output logic close_valid,
    output close_t close,

    output logic [$clog2(FLOWS+1)-1:0] stored,
    output logic working,  // on a frame, or on closing an aggregate
    output logic [TIME_W-1:0] deadline  // of the oldest aggregate, three cycles after a change
);
  localparam int SLOT_W = FLOWS > 1 ? $clog2(FLOWS) : 1;
  localparam int COUNT_W = $clog2(FLOWS + 1);
  localparam int PART_W = 24;
  localparam int FLOW_PARTS = ($bits(flow_t) + PART_W - 1) / PART_W;
  localparam int TEMPLATE_PARTS = ($bits(template_t) + PART_W - 1) / PART_W;
  typedef logic [SLOT_W-1:0] slot_t;

  // Bit positions in the one-hot `states_t`.
  typedef enum logic [3:0] {
    STATE_IDLE,
    STATE_MATCH,
    STATE_HIT,
    STATE_PICK,
    STATE_LOAD,
    STATE_CHECK,
    STATE_LIMITS,
    STATE_STORE,
    STATE_APPEND,
    STATE_CLOSE,
    STATE_START,
    STATE_PASS
  } state_t;
  localparam int STATES = 12;
  typedef logic [STATES-1:0] states_t;

  states_t state_reg;
  states_t state_next;
  states_t behind_reg;  // the state after the close
  flush_reason_t reason_reg;  // of the close
  slot_t slot_reg;
  lro_struct_t frame_reg;
  logic [4:0] pass_reason_reg;

  // The store: the keys in registers, to be compared in parallel; the rest in a memory.
  flow_t flows_reg[FLOWS];
  template_t templates_reg[FLOWS];
  logic [TIME_W-1:0] deadlines_reg[FLOWS];
  logic [FLOWS-1:0] used_reg;
  slot_t order_reg[FLOWS];  // the oldest first
  aggregate_t aggregate_read;
  aggregate_t aggregate_reg;
  logic any_reg;
  logic full_reg;

  // Comparisons with the frame.
  logic [FLOWS-1:0][FLOW_PARTS-1:0] flow_equal_reg;
  logic [FLOWS-1:0][TEMPLATE_PARTS-1:0] template_part_equal_reg;
  logic [FLOWS-1:0] template_equal_reg;
  logic due_reg;
  logic now_due_reg;
  logic [TIME_W-1:0] oldest_deadline_reg;
  logic [TIME_W-1:0] deadline_reg;

  // A flow is in one slot at most. With many slots, the slot multiplexer is on the critical path: registers
  // each slot's hit, its template and the free slot's number first.
  localparam int HIT_GROUPS = (FLOWS + 3) / 4;
  logic [4*HIT_GROUPS-1:0] hits;
  logic [FLOWS-1:0] hits_reg;
  logic [HIT_GROUPS-1:0] hit_reg;  // one of these four slots is hit
  logic hit;
  slot_t hit_slot;
  slot_t free_slot;
  slot_t free_slot_reg;
  logic template_reg;  // the template of `slot_reg` is equal
  assign hit = |hit_reg;
  always_comb begin
    hits = '0;
    for (int i = 0; i < FLOWS; i++) hits[i] = used_reg[i] && &flow_equal_reg[i];
    hit_slot  = '0;
    free_slot = '0;
    for (int i = FLOWS - 1; i >= 0; i--) begin
      if (hits_reg[i]) hit_slot = hit_slot | slot_t'(i);
      if (!used_reg[i]) free_slot = slot_t'(i);
    end
  end

  always_ff @(posedge clk) begin
    for (int i = 0; i < FLOWS; i++) begin
      for (int j = 0; j < FLOW_PARTS; j++) begin
        flow_equal_reg[i][j] <= PART_W'(flows_reg[i] >> (PART_W * j)) == PART_W'(frame_reg.flow >> (PART_W * j));
      end
      for (int j = 0; j < TEMPLATE_PARTS; j++) begin
        template_part_equal_reg[i][j] <=
            PART_W'(templates_reg[i] >> (PART_W * j)) == PART_W'(frame_reg.template_ >> (PART_W * j));
      end
      template_equal_reg[i] <= &template_part_equal_reg[i];
    end
    hits_reg <= hits[FLOWS-1:0];
    for (int i = 0; i < HIT_GROUPS; i++) hit_reg[i] <= |hits[4*i+:4];
    template_reg <= template_equal_reg[slot_reg];
    oldest_deadline_reg <= deadlines_reg[order_reg[0]];
    // In Yosys, `!(a < b)` is one carry chain; `<=` is also a comparison for equality.
    due_reg <= !(frame_reg.arrival < oldest_deadline_reg);
    now_due_reg <= !(now < oldest_deadline_reg);
    deadline_reg <= frame_reg.arrival + TIME_W'(timer_ns);
  end

  // Whether the frame continues the aggregate.
  logic seq_equal_reg;
  logic ts_older_reg;
  logic ack_newer_reg;
  logic longest_reg;  // the frame's payload is longer than all before it
  logic [31:0] ts_distance;
  logic [31:0] ack_distance;
  logic [17:0] length_reg;
  logic [17:0] length_and_one_more_reg;
  logic too_long_reg;
  logic full_length_reg;
  logic full_count_reg;
  logic [17:0] sum_a_reg;
  logic [17:0] sum_b_reg;
  logic [17:0] ack_change_reg;
  logic [19:0] sum_reg;
  logic [15:0] payload_sum;

  assign ts_distance = frame_reg.ts_value - aggregate_reg.ts_value;
  assign ack_distance = frame_reg.ack - aggregate_reg.ack;
  assign payload_sum =
      aggregate_reg.bytes[0] ? {frame_reg.payload_sum[7:0], frame_reg.payload_sum[15:8]} : frame_reg.payload_sum;

  always_ff @(posedge clk) begin
    seq_equal_reg <= frame_reg.seq == aggregate_reg.next_seq;
    ts_older_reg <= ts_distance[31] && frame_reg.template_.ts_at != 0;
    ack_newer_reg <= !ack_distance[31];
    longest_reg <= frame_reg.payload_len > aggregate_reg.mss;
    length_reg <= 18'(aggregate_reg.bytes) + 18'(frame_reg.payload_len) + 18'(aggregate_reg.headers_len);
    length_and_one_more_reg <= length_reg + 18'(aggregate_reg.first_len);
    full_count_reg <= aggregate_reg.count + 11'd1 >= max_segments;
    too_long_reg <= length_reg > 18'(max_bytes);
    full_length_reg <= length_and_one_more_reg > 18'(max_bytes);
    // When a segment joins an aggregate, updates the TCP checksum for its payload, its length, and the
    // changed ACK number and window.
    sum_a_reg <= 18'(aggregate_reg.tcp_checksum) + {2'b00, ~payload_sum};
    ack_change_reg <= 18'(aggregate_reg.ack_window_sum) + {2'b00, ~frame_reg.ack_window_sum};
    sum_b_reg <= {2'b00, ~frame_reg.payload_len} + (ack_newer_reg ? ack_change_reg : 18'd0);
    sum_reg <= 20'(sum_a_reg) + 20'(sum_b_reg);
  end

  // `begun` is the aggregate that the frame begins, `joined` the stored aggregate after the frame has joined.
  aggregate_t begun;
  aggregate_t joined;
  always_comb begin
    begun = '0;
    begun.first = frame_reg.extent.first;
    begun.tail = frame_reg.extent.first;
    begun.arrival = frame_reg.arrival;
    begun.v6 = frame_reg.flow.v6;
    begun.tags = frame_reg.flow.tags;
    begun.payload_at = frame_reg.payload_at;
    begun.headers_len = frame_reg.headers_len;
    begun.frame_len = frame_reg.extent.len;
    begun.first_len = frame_reg.payload_len;
    begun.bytes = frame_reg.payload_len;
    begun.mss = frame_reg.payload_len;
    begun.count = 11'd1;
    begun.next_seq = frame_reg.seq + 32'(frame_reg.payload_len);
    begun.ts_value = frame_reg.ts_value;
    begun.ack = frame_reg.ack;
    begun.window = frame_reg.window;
    begun.ack_window_sum = frame_reg.ack_window_sum;
    begun.tcp_checksum = 17'(frame_reg.tcp_checksum);
    begun.ip_checksum = frame_reg.ip_checksum;

    joined = aggregate_reg;
    joined.tail = frame_reg.extent.first;
    joined.bytes = aggregate_reg.bytes + frame_reg.payload_len;
    if (longest_reg) joined.mss = frame_reg.payload_len;
    joined.count = aggregate_reg.count + 11'd1;
    joined.next_seq = aggregate_reg.next_seq + 32'(frame_reg.payload_len);
    joined.ts_value = frame_reg.ts_value;
    if (ack_newer_reg) begin
      joined.ack = frame_reg.ack;
      joined.window = frame_reg.window;
      joined.ack_window_sum = frame_reg.ack_window_sum;
    end
    joined.tcp_checksum = 17'(sum_reg[15:0]) + 17'(sum_reg[19:16]);
  end

  // This cycle closes an aggregate, starts one, or appends the frame to one.
  logic closing;
  logic starting;
  logic appending;
  assign closing = state_reg[STATE_CLOSE] && close_ready;
  assign starting = state_reg[STATE_START];
  assign appending = state_reg[STATE_APPEND];

  always_comb begin
    struct_take = state_reg[STATE_IDLE] && struct_valid;
    taken = frame_reg;
    segment_write = taken_valid;
    segment_page = frame_reg.extent.first;
    segment.extent = frame_reg.extent;
    segment.payload_at = frame_reg.payload_at;
    segment.payload_len = frame_reg.payload_len;
    next_write = appending;
    next_of = aggregate_reg.tail;
    next = frame_reg.extent.first;

    close.aggregate = aggregate_reg;
    close.bad = frame_reg.class_ == CLASS_BAD;
    close_valid = close_ready && (state_reg[STATE_PASS] || state_reg[STATE_CLOSE]);
    if (state_reg[STATE_PASS]) begin
      close.kind = (frame_reg.class_ == CLASS_DROP || frame_reg.class_ == CLASS_BAD) ? KIND_FREE : KIND_PASS;
      close.reason = pass_reason_reg;
      close.aggregate.first = frame_reg.extent.first;
      close.aggregate.frame_len = frame_reg.extent.len;
      close.aggregate.bytes = frame_reg.payload_len;
      close.aggregate.arrival = frame_reg.arrival;
    end else begin
      close.kind = aggregate_reg.count == 11'd1 ? KIND_SINGLE : KIND_AGGREGATE;
      close.reason = 5'(reason_reg);
    end
  end

  // Writes the aggregate back to the memory a cycle after it has changed. With one flow, the register itself
  // is the store.
  if (FLOWS == 1) begin : gen_one
    assign aggregate_read = aggregate_reg;
  end else begin : gen_memory
    (* ram_style = "distributed" *)
    logic [$bits(aggregate_t)-1:0] aggregates[FLOWS];
    logic changed_reg;
    assign aggregate_read = aggregates[slot_reg];
    always_ff @(posedge clk) begin
      changed_reg <= starting || appending;
      if (changed_reg) aggregates[slot_reg] <= aggregate_reg;
      if (rst) changed_reg <= 1'b0;
    end
  end

  logic [1:0] changed_reg;
  // Without a frame, closes the oldest aggregate, a cycle after a reason arises.
  logic idle_close_reg;
  flush_reason_t idle_reason_reg;
  always_ff @(posedge clk) begin
    idle_close_reg <= state_reg[STATE_IDLE] && !struct_valid && !idle_close_reg && any_reg &&
        ((quiet && (drain || (now_due_reg && changed_reg == 0))) || starved);
    idle_reason_reg <= (quiet && drain) ? FLUSH_DRAIN : quiet && now_due_reg ? FLUSH_TIMEOUT : FLUSH_EVICTED;
    if (rst) idle_close_reg <= 1'b0;
  end

  logic check_reg;  // the slot was loaded to see whether the frame joins
  logic pass_all_reg, pass_flow_reg, store_reg;  // the frame's class
  logic started_reg;
  logic [FLOWS-1:0] write_slot_reg;
  logic update_reg;  // the aggregate is loaded, begun or appended to
  logic due;
  logic joins;
  logic ends;
  assign due = due_reg && any_reg;
  assign joins = seq_equal_reg && template_reg && !ts_older_reg && !too_long_reg;
  assign ends = full_length_reg || full_count_reg;

  always_comb begin
    state_next = '0;
    if (state_reg[STATE_IDLE]) begin
      if (struct_valid) state_next[STATE_MATCH] = 1'b1;
      else if (idle_close_reg) state_next[STATE_LOAD] = 1'b1;
      else state_next[STATE_IDLE] = 1'b1;
    end
    if (state_reg[STATE_MATCH]) state_next[STATE_HIT] = 1'b1;
    if (state_reg[STATE_HIT]) state_next[STATE_PICK] = 1'b1;
    if (state_reg[STATE_PICK]) begin
      if (due || (pass_all_reg && any_reg) || (pass_flow_reg && hit) || (store_reg && (hit || full_reg))) begin
        state_next[STATE_LOAD] = 1'b1;
      end else if (store_reg) state_next[STATE_START] = 1'b1;
      else state_next[STATE_PASS] = 1'b1;
    end
    if (state_reg[STATE_LOAD] && check_reg) state_next[STATE_CHECK] = 1'b1;
    if (state_reg[STATE_LOAD] && !check_reg) state_next[STATE_CLOSE] = 1'b1;
    if (state_reg[STATE_CHECK]) state_next[STATE_LIMITS] = 1'b1;
    if (state_reg[STATE_LIMITS]) state_next[STATE_STORE] = 1'b1;
    if (state_reg[STATE_STORE] && joins) state_next[STATE_APPEND] = 1'b1;
    if (state_reg[STATE_STORE] && !joins) state_next[STATE_CLOSE] = 1'b1;
    if (state_reg[STATE_APPEND] && ends) state_next[STATE_CLOSE] = 1'b1;
    if (state_reg[STATE_APPEND] && !ends) state_next[STATE_IDLE] = 1'b1;
    if (state_reg[STATE_CLOSE] && !close_ready) state_next[STATE_CLOSE] = 1'b1;
    if (state_reg[STATE_CLOSE] && close_ready) state_next = state_next | behind_reg;
    if (state_reg[STATE_START]) state_next[STATE_IDLE] = 1'b1;
    if (state_reg[STATE_PASS] && !close_ready) state_next[STATE_PASS] = 1'b1;
    if (state_reg[STATE_PASS] && close_ready) state_next[STATE_IDLE] = 1'b1;
  end

  function automatic states_t only(state_t state);
    return states_t'(1) << state;
  endfunction

  always_ff @(posedge clk) begin
    state_reg   <= state_next;
    taken_valid <= struct_take;
    update_reg  <= state_next[STATE_LOAD] || state_next[STATE_START] || state_next[STATE_APPEND];
    if (update_reg) aggregate_reg <= appending ? joined : starting ? begun : aggregate_read;

    if (state_reg[STATE_IDLE]) begin
      check_reg <= 1'b0;
      frame_reg <= struct_in;
      pass_all_reg <= struct_in.class_ == CLASS_PASS_ALL;
      pass_flow_reg <= struct_in.class_ == CLASS_PASS_FLOW;
      store_reg <= struct_in.class_ == CLASS_STORE;
      pass_reason_reg <= struct_in.reason;
      slot_reg <= order_reg[0];
      reason_reg <= idle_reason_reg;
      behind_reg <= only(STATE_IDLE);
    end

    // Selects the slot to close or to join, and the state after a close. These do not matter while nothing is
    // stored.
    if (state_reg[STATE_PICK]) begin
      check_reg <= !due_reg && store_reg && hit;
      slot_reg  <= (!due_reg && !pass_all_reg && hit) ? hit_slot : order_reg[0];
      if (due_reg) begin
        reason_reg <= FLUSH_TIMEOUT;
        behind_reg <= only(STATE_MATCH);
      end else if (pass_all_reg) begin
        reason_reg <= FLUSH_BARRIER;
        behind_reg <= only(STATE_PICK);
      end else if (pass_flow_reg) begin
        reason_reg <= FLUSH_BARRIER;
        behind_reg <= only(STATE_PASS);
      end else begin
        reason_reg <= hit ? FLUSH_OUT_OF_ORDER : FLUSH_FLOW_MISMATCH;
        behind_reg <= only(hit ? STATE_PASS : STATE_START);
      end
    end

    // A frame that does not join closes the aggregate.
    if (state_reg[STATE_STORE]) begin
      check_reg <= 1'b0;
      if (!seq_equal_reg) pass_reason_reg <= 5'(PASS_OUT_OF_ORDER);
      else begin
        behind_reg <= only(STATE_START);
        reason_reg <= (!template_reg || ts_older_reg) ? FLUSH_UNEQUAL_FIELD : FLUSH_MAX_LENGTH;
      end
    end

    if (state_reg[STATE_APPEND]) begin
      reason_reg <= full_length_reg ? FLUSH_MAX_LENGTH : FLUSH_MAX_SEGMENTS;
      behind_reg <= only(STATE_IDLE);
    end

    // Writes the table a cycle later, while `frame_reg` still has the frame. Each slot has an enable bit of
    // its own, because it drives hundreds of registers.
    if (state_reg[STATE_START]) slot_reg <= free_slot_reg;
    started_reg <= starting;
    for (int i = 0; i < FLOWS; i++) begin
      write_slot_reg[i] <= starting && free_slot_reg == slot_t'(i);
      if (write_slot_reg[i]) begin
        flows_reg[i] <= frame_reg.flow;
        templates_reg[i] <= frame_reg.template_;
        deadlines_reg[i] <= deadline_reg;
      end
    end

    // The timer's comparison reflects a change of the table two cycles later.
    changed_reg <= {changed_reg[0], closing || starting || started_reg};
    if (rst) begin
      state_reg   <= only(STATE_IDLE);
      update_reg  <= 1'b0;
      taken_valid <= 1'b0;
      started_reg <= 1'b0;
      write_slot_reg <= '0;
      changed_reg <= '0;
    end
  end

  assign working = !state_reg[STATE_IDLE];
  assign deadline = oldest_deadline_reg;

  // Slots in the order in which their aggregates began; entries after the first `stored` ones do not matter.
  // A slot is loaded at least a cycle before it is closed, so `behind_slot_reg` is valid then.
  logic [FLOWS-1:0] behind_slot;
  logic [FLOWS-1:0] behind_slot_reg;
  always_comb begin
    behind_slot = '0;
    for (int i = 0; i < FLOWS; i++) begin
      behind_slot[i] = order_reg[i] == slot_reg;
      if (i > 0) behind_slot[i] = behind_slot[i] || behind_slot[i-1];
    end
  end

  always_ff @(posedge clk) begin
    behind_slot_reg <= behind_slot;
    // A frame may begin an aggregate in the cycle after one was closed, in the same slot.
    free_slot_reg   <= closing ? slot_reg : free_slot;
    if (closing) begin
      used_reg[slot_reg] <= 1'b0;
      stored <= stored - 1'b1;
      any_reg <= stored != COUNT_W'(1);
      full_reg <= 1'b0;
      for (int i = 0; i < FLOWS - 1; i++) if (behind_slot_reg[i]) order_reg[i] <= order_reg[i+1];
    end
    if (starting) begin
      used_reg[free_slot_reg] <= 1'b1;
      order_reg[stored[SLOT_W-1:0]] <= free_slot_reg;
      stored <= stored + 1'b1;
      any_reg <= 1'b1;
      full_reg <= stored == COUNT_W'(FLOWS - 1);
    end
    if (rst) begin
      used_reg <= '0;
      stored <= '0;
      any_reg <= 1'b0;
      full_reg <= 1'b0;
    end
  end
endmodule

`resetall
