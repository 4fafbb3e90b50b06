// SPDX-License-Identifier: MIT
// The part of a layer that moves information between positions, as nodes of a graph. One source per
// mixer beside this one; memory/layer_memory.h says what each remembers.
//
// Thread rule: the engine thread; nodes of its own run on all threads of the team.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/stop_signal.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "device/cpu_device.h"
#include "device/devices.h"
#include "engine/engine_options.h"
#include "forward/dense/attention.h"
#include "forward/dense/tensors.h"
#include "memory/kv_cache.h"
#include "memory/state_store.h"

namespace moestro {

// Where the state before a row lies, and where the state after it goes. The two are one place for a
// row that follows another of its sequence.
struct RowState {
  std::optional<StateSlot> from = {};  // nullopt: all zeros, before the first token
  std::optional<StateSlot> to = {};    // nullopt: no layer has a state
};

// The rows of one graph, in order; rows of one sequence are in order of position.
struct MixerRows {
  ggml_context* ctx = nullptr;
  ggml_cgraph* graph = nullptr;
  LayerId layer;
  ggml_tensor* x = nullptr;           // F32 [n_embd, rows]
  ggml_tensor* positions = nullptr;   // I32 [rows]
  ggml_tensor* cells = nullptr;       // I64 [rows]: rows of the KV cache to write
  std::span<const RowCells> visible;  // [rows]; lives until the graph has run
  std::span<const RowState> states;   // [rows]; the same
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  // Adds nodes: x -> x + what the mixer makes of norm(x), F32 [n_embd, rows]. A graph holds the
  // nodes of one call.
  virtual ggml_tensor* Build(const LayerTensors& weights, const MixerRows& rows) = 0;
  // On a device: the rows of the following graphs. kDevice.
  virtual Status SetRows(std::span<const RowCells> /*visible*/) { return {}; }
  // As SetRows() with so many rows that see everything, but nothing is sent: for sizes.
  virtual void Assume(uint32_t /*rows*/) {}
  // What the mixer takes beside the graph's own memory; on top of it each thread of the CPU.
  virtual uint64_t work_bytes() const { return 0; }
  virtual uint64_t thread_bytes() const { return 0; }
};

// What mixers are made from; everything is borrowed.
struct MixerParts {
  CpuDevice& cpu;
  const ModelSpec& spec;
  const ModelTensors& tensors;
  const KvCache& kv;
  const StateStore& states;
  const ComputeDevice* device = nullptr;  // where graphs run; null: on the CPU
  StopSignal* stop = nullptr;             // looked at within nodes; null: nothing asks for a stop
  uint32_t n_ctx = 0;                     // the longest sequence
  uint32_t chunk = 0;                     // rows of a graph, at most
};

// What EngineOptions::make_state_mixer makes. REQUIRES: what it adds to the graph runs where
// MixerParts says.
// kNoMemory; kUnsupported: `make_state` is empty and the mixer has a state; kDevice.
Result<std::unique_ptr<Mixer>> MakeMixer(const MixerParts& parts, const MixerSpec& spec,
                                         const MakeStateMixer& make_state);

}  // namespace moestro
