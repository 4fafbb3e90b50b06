// SPDX-License-Identifier: MIT
// The part of a layer that moves information between positions, as nodes of a graph, and the most
// usual one, attention. The other mixers have a source beside this one; memory/layer_memory.h lists
// the memory of a sequence that mixers keep.
//
// Thread rule: the engine thread; a mixer's own nodes run on all threads of the team.
#pragma once

#include <ggml.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/cpu_device.h"
#include "compute/devices.h"
#include "compute/row_kernel.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "devices/device_link.h"
#include "engine/engine_options.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/attention.h"
#include "forward/dense/blocks.h"
#include "forward/dense/step_rows.h"
#include "memory/layer_values.h"

namespace moestro {

// Turns projections into the share that a state keeps and the share that it takes in. Pure.

// log(1 + e^x), without an overflow for large x.
inline float Softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

inline float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// The share that a head, or a value of its key, keeps: `a` is the head's rate, and `bound` the
// logarithm of the smallest share, or 0. REQUIRES: a is below 0, or with a bound above 0.
inline float Decay(float a, float x, float bound) {
  return std::exp(bound < 0.0F ? bound * Sigmoid(a * x) : a * Softplus(x));
}

// The graph of a layer under construction, and the inputs of the mixer's nodes.
struct MixerGraph {
  ggml_context* ctx = nullptr;
  ggml_cgraph* graph = nullptr;
  LayerId layer;
  uint32_t first = 0;                // number of the first row in its step
  ggml_tensor* x = nullptr;          // F32 [n_embd, rows]
  ggml_tensor* positions = nullptr;  // I32 [rows]
  ggml_tensor* cells = nullptr;      // I64 [rows]: rows of the layer's keys and values to write
};

// The rows of one run, in order; rows of one sequence are in order of position.
struct MixerRows {
  LayerId layer;
  uint32_t first = 0;                 // number of the first row in its step
  std::span<const RowCells> visible;  // [rows] in this layer; lives until the graph has run
  std::span<const RowState> states;   // [rows]; lives until the graph has run
  // The cells of all positions before each row, whatever the layer's are; lives as long.
  std::span<const RowCells> all = {};
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  // Adds nodes: x -> mixer(norm(x)), F32 [n_embd, rows]. A graph holds the nodes of one call. A
  // graph may run many times.
  virtual ggml_tensor* Build(const LayerTensors& weights, const MixerGraph& in) = 0;
  // Adds nodes that write the keys and values of the source's rows, for a layer that attends to the
  // source. in.x: the encoder's result. REQUIRES: AttentionReach::kAcross.
  virtual void BuildSource(const LayerTensors& /*weights*/, const MixerGraph& /*in*/) {}
  // Sets the rows of the next run of the layer's graph, before each run: equal layers share a
  // mixer.
  virtual void Bind(const LayerTensors& weights, const MixerRows& rows) = 0;
  // Sets the positions of a step's rows: once before their graphs run, and again after
  // other rows. Copies the positions.
  virtual Status SetPositions(std::span<const int32_t> /*positions*/) { return {}; }
  // On a device: sets the rows of the following graphs, and adds the bytes that must be there first
  // to the border.
  virtual void SetRows(std::span<const RowCells> /*visible*/, Border& /*border*/) {}
  // On a device: cells that the following graphs visit, by which their nodes differ.
  virtual uint32_t visited() const { return 0; }
  // As SetRows() with this many rows that attend to all cells, but sends no data: for sizes.
  virtual void Assume(uint32_t /*rows*/) {}
  // work_bytes(): bytes of the mixer beside the graph's own memory. thread_bytes(): further bytes
  // for each CPU thread.
  virtual uint64_t work_bytes() const { return 0; }
  virtual uint64_t thread_bytes() const { return 0; }
};

// The parts of mixers; all are borrowed.
struct MixerParts {
  CpuDevice& cpu;
  const ModelSpec& spec;
  const ModelTensors& tensors;
  const KvCache& kv;
  const StateStore& states;
  const ComputeDevice* device = nullptr;  // the device of graphs; null: the CPU
  const RowNorm* norm = nullptr;          // the model's norm, on the CPU; outlives the mixer
  StopSignal* stop = nullptr;             // read within nodes; null: no stop is requested
  uint32_t n_ctx = 0;                     // the longest sequence
  uint32_t chunk = 0;                     // rows of a graph, at most
  uint32_t n_cells = 0;                   // cells of the layer; 0: the layer has none
  ChosenPositions* chosen = nullptr;      // not null where a layer has an indexer
};

// Makes a mixer. A test's mixer comes from `make_state` (EngineOptions::make_state_mixer).
// REQUIRES: the mixer's nodes run on the device of MixerParts. kNoMemory; kUnsupported:
// `make_state` is empty and the mixer is a test's; kDevice: a state cannot be on a device.
Result<std::unique_ptr<Mixer>> MakeMixer(const MixerParts& parts, const MixerSpec& spec,
                                         const MakeStateMixer& make_state);

// Self-attention over the cells of a row's own sequence: heads that share keys and values, rotated
// by position, with the norms, limits and biases of model families.

// Attention in tiles on the CPU, with a mask on a device. kNoMemory, kDevice.
Result<std::unique_ptr<Mixer>> MakeAttentionMixer(const MixerParts& parts,
                                                  const AttentionSpec& spec);

}  // namespace moestro
