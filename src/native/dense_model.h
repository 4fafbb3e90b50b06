// SPDX-License-Identifier: MIT
// The dense part of an engine: its weights, the memory of sequences, the buffers between graphs,
// and the graph of each layer. The dense part is on the first device if the device has room and
// computes as exactly as the CPU, else on the CPU.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/look_ahead.h"
#include "compute/team.h"
#include "core/batch.h"
#include "core/model_spec.h"
#include "devices/step_buffers.h"
#include "engine/engine.h"
#include "engine/plan/memory_plan.h"
#include "forward/dense/layer_graph.h"
#include "forward/experts/expert_exec.h"
#include "memory/layer_memory.h"
#include "memory/layer_values.h"
#include "model/model_file.h"
#include "native/catalog.h"
#include "native/find_weights.h"
#include "native/opened_model.h"
#include "native/weight_load.h"
#include "residency/table_rows.h"
#include "store/read_queue.h"

namespace moestro {

// Counts the bytes beside the experts that a pass over the layers must read from memory: every
// weight once for all rows of the pass, and the keys, values and states that the rows use.

struct DenseReads {
  uint64_t weights = 0;    // bytes of every pass: all weights except the two below
  uint64_t head = 0;       // the output matrix, if a row has logits
  uint64_t embedding = 0;  // the embedding of one token
  uint64_t position = 0;   // the key and value of a position in all layers
  uint64_t state = 0;      // the state of one sequence in all layers, read and written

  // Bytes as in the file; repacked layouts have the same size.
  static DenseReads Of(const ModelWeights& weights, const ModelSpec& spec,
                       const MemoryShape& remembers);
  // A sequence's positions count once, for its last row.
  uint64_t OfPass(std::span<const BatchRow> rows) const;
};

class Device;

class DenseModel {
 public:
  // All must outlive this. first: the first device. Its plan then has the dense part's bytes on the
  // device. null: the CPU has the dense part. kNoMemory, kUnsupported. A fault of the device is
  // logged, and the CPU has the dense part.
  static Result<std::unique_ptr<DenseModel>> Create(const OpenedModel& opened, Team& team,
                                                    StopSignal& stop, Device* first);
  DenseModel(const DenseModel&) = delete;
  DenseModel& operator=(const DenseModel&) = delete;

  // Moves the dense part from the device to the CPU. REQUIRES: weights are not loaded yet.
  Status MoveToCpu();
  bool is_on_device() const { return graph_->is_on_device(); }
  // Rows of steps whose layers the device may compute whole, at most; 0: none.
  uint32_t whole_rows() const { return whole_rows_; }
  // Adds the bytes that the dense part takes in memory.
  void AddTo(FixedBytes& fixed) const;
  // Reads the weights, and finds their sum during the reads if it is needed. kIo; kInvalidFile: a
  // router's bias holds NaN.
  Status Load(ReadQueue& queue, Team& team, const Progress& report, KnownWeights& known);

  LayerGraph& graph() { return *graph_; }
  StepBuffers& buffers() { return buffers_; }
  const KvCache& kv() const { return kv_; }
  // Places for states: at first the fewest that sequences need.
  uint32_t n_states() const { return n_states_; }
  // Takes further places where `room` bytes of the budget allow them. The content of all places is
  // lost. `known`: as many places in all as before a restart; 0: the first start. kNoMemory.
  Status TakeStates(uint64_t room, uint32_t known);
  StateStore& states() { return states_; }
  const StateStore& states() const { return states_; }
  TableRows* table() { return table_.get(); }  // null: no layer takes in n-grams
  // Work of the table of n-grams since creation.
  TableCounts table_counts() const { return table_ ? table_->counts() : TableCounts(); }
  const ModelTensors& tensors() const { return tensors_; }
  const std::vector<LayerForm>& layers() const { return layers_; }  // layers with experts
  // Weights, keys and values that a pass with these rows reads.
  uint64_t ReadBy(std::span<const BatchRow> rows) const { return reads_.OfPass(rows); }
  // The share of the weights' reads that look-ahead adds.
  double look_ahead_share() const;

 private:
  DenseModel(const OpenedModel& opened, Team& team, StopSignal& stop)
      : opened_(opened), team_(team), stop_(stop), n_states_(opened.plan.n_states) {}
  Status PutOn(Device& first);
  Status Build(DeviceLink* link);
  void LetGo();
  StepLimits limits(bool is_there) const;
  uint32_t RowsOfWhole(uint64_t vram) const;
  uint64_t BytesOn(const ComputeDevice& there) const;
  Status CheckSilentValues() const;
  Status CheckExpertsOfTokens(const ggml_tensor& table, const TensorInfo& info) const;
  Status CheckScoresThere() const;
  Status CheckRoom(const Device& first) const;
  Status Try(const ComputeDevice& there) const;
  Status TryAttention(const ComputeDevice& there, const AttentionShape& shape) const;

  const OpenedModel& opened_;
  Team& team_;
  StopSignal& stop_;
  DenseReads reads_;
  DensePlan weights_;
  uint32_t whole_rows_ = 0;
  ModelTensors tensors_;
  JoinedKeys joined_keys_;
  std::vector<LayerForm> layers_;
  StepBuffers buffers_;
  KvCache kv_;
  std::unique_ptr<TableRows> table_;  // null: no layer takes in n-grams
  uint32_t n_states_;
  StateStore states_;
  LookAheadRouters look_ahead_routers_;
  std::unique_ptr<LayerGraph> graph_;
};

}  // namespace moestro
