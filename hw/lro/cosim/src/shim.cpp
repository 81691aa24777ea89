// SPDX-License-Identifier: MIT OR Apache-2.0
// The C interface of one Verilator model; compiled once for each set of parameters.
#include <cstdint>
#include <cstring>

#include MODEL_HEADER
#include "verilated.h"
#if VM_COVERAGE
#include <cstdlib>
#include <mutex>
#include <string>
#include <unistd.h>
#include <vector>

#include MODEL_SYMBOLS
#include "verilated_cov.h"
#endif

double sc_time_stamp() __attribute__((weak));
double sc_time_stamp() { return 0; }

extern "C" {

// Inputs of one cycle.
struct lro_inputs {
  uint64_t now;
  uint64_t arrival;
  uint8_t data[32];
  uint32_t keep;
  uint32_t axil_address;
  uint32_t axil_data;
  uint8_t rst, valid, last, bad, ready, axil_write, axil_read, axil_strobe;
  uint8_t axil_ready, padding[7];
};

// Outputs of one cycle, before its clock edge.
struct lro_outputs {
  uint64_t arrival;
  uint64_t deadline;
  uint8_t data[32];
  uint32_t keep;
  uint32_t axil_data;
  uint16_t segments, mss;
  uint8_t ready, valid, last, kind, reason, network, transport, payload;
  uint8_t busy, deadline_valid, axil_taken, axil_written, axil_read, padding[3];
};

#define JOIN_(a, b, c, d) a##b##_##c##_##d
#define JOIN(a, b, c, d) JOIN_(a, b, c, d)
#define NAME(name) JOIN(lro_, name, DATA_W, FLOWS)

#if VM_COVERAGE
// Writes the coverage of all models with these parameters to a file in the folder NICHROME_RTL_COVERAGE, if
// `top` has covered a point that no model before it had; few do. Counts stop at 2: a toggle is a change each
// way, in one model.
static void write_coverage(MODEL *top) {
  static std::mutex mutex;
  static std::vector<uint32_t> most;
  std::lock_guard<std::mutex> lock(mutex);
  auto &points = top->rootp->vlSymsp->__Vcoverage;
  const size_t count = sizeof(points) / sizeof(points[0]);
  most.resize(count);
  const char *folder = getenv("NICHROME_RTL_COVERAGE");
  bool is_new = false;
  for (size_t at = 0; at < count; at++) {
    const uint32_t here = points[at] < 2 ? uint32_t(points[at]) : 2;
    is_new |= here > most[at];
    points[at] = most[at] = here > most[at] ? here : most[at];
  }
  if (!is_new || !folder) return;
  const std::string file = std::string(folder) + "/" + std::to_string(getpid()) + "_" + std::to_string(DATA_W) + "_" +
                           std::to_string(FLOWS) + ".dat";
  top->contextp()->coveragep()->write(file.c_str());
}
#endif

void *NAME(new)() {
  return new MODEL(new VerilatedContext());
}

void NAME(delete)(void *model) {
  MODEL *top = static_cast<MODEL *>(model);
  VerilatedContext *context = top->contextp();
  // Otherwise the model would remove the data of the model that ran last from the thread's context.
  Verilated::threadContextp(context);
  top->final();
#if VM_COVERAGE
  write_coverage(top);
#endif
  delete top;
  delete context;
}

void NAME(cycle)(void *model, const lro_inputs *in, lro_outputs *out) {
  MODEL *top = static_cast<MODEL *>(model);
  top->clk = 0;
  top->rst = in->rst;
  top->now = in->now;
  top->s_axis_arrival = in->arrival;
  memcpy(&top->s_axis_tdata, in->data, DATA_W / 8);
  top->s_axis_tkeep = in->keep;
  top->s_axis_tvalid = in->valid;
  top->s_axis_tlast = in->last;
  top->s_axis_tuser = in->bad;
  top->m_axis_tready = in->ready;
  top->s_axil_awaddr = in->axil_address;
  top->s_axil_awvalid = in->axil_write;
  top->s_axil_wdata = in->axil_data;
  top->s_axil_wstrb = in->axil_strobe;
  top->s_axil_wvalid = in->axil_write;
  top->s_axil_bready = in->axil_ready;
  top->s_axil_araddr = in->axil_address;
  top->s_axil_arvalid = in->axil_read;
  top->s_axil_rready = in->axil_ready;
  top->eval();
  out->arrival = top->m_axis_arrival;
  out->deadline = top->deadline;
  memcpy(out->data, &top->m_axis_tdata, DATA_W / 8);
  out->keep = top->m_axis_tkeep;
  out->axil_data = top->s_axil_rdata;
  out->segments = top->m_axis_segments;
  out->mss = top->m_axis_mss;
  out->ready = top->s_axis_tready;
  out->valid = top->m_axis_tvalid;
  out->last = top->m_axis_tlast;
  out->kind = top->m_axis_kind;
  out->reason = top->m_axis_reason;
  out->network = top->m_axis_network;
  out->transport = top->m_axis_transport;
  out->payload = top->m_axis_payload;
  out->busy = top->busy;
  out->deadline_valid = top->deadline_valid;
  out->axil_taken = top->s_axil_awready && top->s_axil_wready;
  out->axil_written = top->s_axil_bvalid;
  out->axil_read = top->s_axil_rvalid;
  top->clk = 1;
  top->eval();
}

}
