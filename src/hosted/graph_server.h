// SPDX-License-Identifier: MIT
// Serves libllama's graph during its run. The graph stops when a router's choice is known, and goes
// on when the chosen experts are in memory. The work is that of the native step between a layer's
// two halves (forward/step.cc), with the same decisions.
//
//   ask(rows)      the rows that a node will take of a table in the file start to be read
//   ask(ids)       the graph stops after this node
//   ids computed   routing -> plan -> leases; absent experts start to be read
//   ask(product)   the choice of its experts was served in this graph, else an error; the product
//                  is led to the slots
//   product        waits for its experts one after the other, if the kernels are ours; for
//                  libllama's own product all of them were waited for when the ids were computed
//
// Thread rule: the engine thread, within llama_decode().
#pragma once

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/cpu_device.h"
#include "compute/look_ahead.h"
#include "core/batch.h"
#include "engine/watchers.h"
#include "hosted/kernel_products.h"
#include "hosted/learned_graph.h"
#include "hosted/llama_rows.h"
#include "hosted/slot_products.h"
#include "hosted/table_reads.h"
#include "kit/slot_engine.h"
#include "residency/leases.h"

namespace moestro {

// The routers of later layers, evaluated on the input of an earlier layer's router while libllama's
// graph stands still. Only for predictions: libllama's own routers choose.
// Source: HOBBIT's look-ahead, as in decide/ahead/predictors.cc.
//
// Thread rule: the engine thread, while libllama computes nothing.

class EarlyRouters {
 public:
  // The most layers that can be looked ahead from the first one: 0 unless all routers have the
  // known form (hosted/learned_graph.h), the same sizes and the same K.
  static uint32_t MostAhead(const LearnedGraph& graph);
  static uint64_t BytesFor(const LearnedGraph& graph);
  // The graph and the device must outlive this. kNoMemory. REQUIRES: MostAhead() > 0, and the
  // model's dense part is loaded.
  static Result<EarlyRouters> Create(const LearnedGraph& graph, CpuDevice& cpu);

  // Evaluates the routers of the next `layers` groups on the input of this group's router, which
  // has just computed `ids`. Returns their choices [distance - 1][row][K], as far as the last
  // group; none if this graph's router has not the learned form. kNoMemory.
  Result<RoutedAhead> Choose(uint32_t group, const ggml_tensor& ids, uint32_t layers);

 private:
  EarlyRouters(const LearnedGraph& graph, CpuDevice& cpu, LookAheadRouters routers);
  void Choose(uint32_t group, std::span<float> logits, RoutedAhead& ahead) const;

  const LearnedGraph* graph_;
  LookAheadRouters routers_;
  GraphArena arena_;
  std::vector<float> logits_;  // scratch
};

class GraphServer {
 public:
  // The graph, and the parts that compute in it.
  struct Products {
    const LearnedGraph& graph;
    SlotProducts& slots;
    KernelProducts* kernels = nullptr;  // may be null: libllama's products stay
    EarlyRouters* early = nullptr;      // may be null: no router is evaluated ahead
    TableReads* tables = nullptr;       // may be null: rows of tables are read by page faults
  };
  // All must outlive this.
  GraphServer(const Products& products, StepFrame& frame, GraphHooks& hooks);
  ~GraphServer() { hooks_ = {}; }
  GraphServer(const GraphServer&) = delete;
  GraphServer& operator=(const GraphServer&) = delete;

  // One llama_decode()'s rows.
  struct Rows {
    std::span<const RowKind> kinds;  // [rows]
    // Kinds of the rows with logits: libllama may compute the last layers for these rows alone.
    std::span<const RowKind> kinds_of_outputs;
    uint32_t look_ahead = 0;  // layers whose routers are evaluated ahead
  };
  // The graphs of one llama_decode() begin.
  void Begin(const Rows& rows);
  // Computes the graphs of the rows, which are those of Begin(). An error of reading;
  // kInterrupted; kUnsupported: the graph differs from the learned graph, or libllama cannot
  // compute the rows; kInvalidRequest: the KV cache has no room.
  Status Decode(const LlamaRows& rows, llama_context* context);

  double wait_seconds() const { return wait_seconds_; }  // waiting for reads, since creation
  double look_ahead_seconds() const { return look_ahead_seconds_; }  // of early routers

 private:
  struct Group {
    bool is_served = false;
    uint32_t products_left = 0;
    LeaseStream leases = {};
  };
  bool OnNode(ggml_tensor& node, bool asks);
  bool Ask(ggml_tensor& node);
  void BeginGraph();
  Status End();
  Status Lead(ggml_tensor& node);
  Status LeadProduct(ggml_tensor& product);
  bool is_ours(uint32_t group) const {
    return products_.kernels != nullptr && products_.kernels->has(group);
  }
  Status Serve(uint32_t group, const ggml_tensor& ids);
  Result<Routing> RoutingOf(uint32_t group, const ggml_tensor& ids) const;
  std::span<const RowKind> KindsOf(uint32_t rows) const;
  Result<RoutedAhead> LookAhead(uint32_t group, const ggml_tensor& ids);
  bool is_ended();
  void Advance();
  void WaitBriefly();
  template <class Work>
  void Guard(Work&& work);
  enum class Until : uint8_t { kTaken, kComplete };
  Status WaitFor(LeaseStream& leases, Until until);
  void EndGroups();
  void EndLeases(uint32_t group);

  Products products_;
  StepFrame& frame_;
  GraphHooks& hooks_;
  std::map<std::string, std::vector<uint32_t>, std::less<>> groups_of_;  // by name of ids, in order
  std::vector<RowKind> kinds_;
  std::vector<RowKind> kinds_of_outputs_;
  uint32_t look_ahead_ = 0;
  // State of the graph under way.
  std::vector<Group> groups_;
  // occurrences of each name of ids so far
  std::map<std::string, size_t, std::less<>> seen_;
  // ids that the graph computes next
  std::optional<std::pair<const ggml_tensor*, uint32_t>> awaited_;
  std::optional<Error> error_;
  double wait_seconds_ = 0.0;
  double look_ahead_seconds_ = 0.0;
};

}  // namespace moestro
