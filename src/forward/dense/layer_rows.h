// SPDX-License-Identifier: MIT
// Work on the rows of a layer beside its graph: embeddings, pieces, checks for NaN, rows fetched
// from a device.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/devices.h"
#include "core/ids.h"
#include "core/kv_cells.h"
#include "core/model_spec.h"
#include "devices/device_link.h"
#include "devices/step_buffers.h"
#include "forward/dense/blocks.h"
#include "forward/dense/step_rows.h"

namespace moestro {

// Looks up the input of the first layer.

// Each row's token of the table [n_embd, n_vocab], in memory, times `scale` -> out [rows][n_embd].
// Any thread.
void EmbedRows(const ggml_tensor& table, float scale, std::span<const StepRow> rows, float* out);

// Limits the rows of a step that a graph of one layer has on the CPU. Pure.

// The number of rows with which the largest product of a graph takes some 20 ms on `threads`
// threads, so that a stop takes effect soon: a graph ends between products, not within one.
uint32_t PieceRows(const ModelTensors& tensors, uint32_t threads);

// Finds NaN and infinity, the results of damaged weights or overflows.

// The first row of `values`, [rows][width], that holds a NaN or an infinity; nullopt: no such row.
// Takes about 0.1 ns a value. REQUIRES: width divides the number of values.
std::optional<size_t> FirstRowNotFinite(std::span<const float> values, size_t width);

// Checks that a device computes a graph, and that a layer has left finite numbers in the
// StepBuffers.
//
// Thread rule: the engine thread.

// Checks the logits of a layer with a router, else the layer's result. The result of a layer
// without experts on a device is checked with the next router. kInvalidFile: some number is NaN or
// infinite; the message names the position and the layer.
Status CheckLayer(const ModelSpec& spec, const StepBuffers& buffers, LayerId layer, size_t n_rows);

// Checks the logits of these rows, the first ones of the buffer. kInvalidFile: some number is NaN
// or infinite; the message names the position.
Status CheckLogits(const ModelSpec& spec, const StepBuffers& buffers, StepRows rows);

// Checks that the device computes every node; null: the CPU, which does. `type`: the type of keys
// and values. kDevice, naming the node.
Status CheckComputes(const ComputeDevice* device, ggml_cgraph* graph, KvType type);

// The rows of a layer that are needed beside a device, each [rows][n_embd]: ffn_in for experts
// whose sum the device adds to its own, also residual and shared for a sum in memory. Rows come
// back at the border of the router's logits if the layer's rows did in one of the last steps, else
// at a border of their own, once the choice of experts is known: bytes that are not used cost less
// than another wait.
//
// Thread rule: the engine thread.

class FetchedRows {
 public:
  // `buffers` must outlive this.
  FetchedRows(const StepBuffers& buffers, size_t n_layers, bool has_shared)
      : buffers_(&buffers), has_shared_(has_shared), likely_(n_layers) {}

  enum class Which : uint8_t { kNone, kInputs, kAll };

  // Adds the reads of the layer's rows to the border of its logits, if they are likely to be
  // needed. `bytes`: of the rows in one region.
  void AddLikely(size_t layer, uint64_t bytes, Border& border);
  // Copies the rows to memory, unless memory has them. kDevice.
  Status Fetch(Which which, uint64_t bytes, DeviceLink& link);

 private:
  void Add(Which which, uint64_t bytes, Border& border);

  const StepBuffers* buffers_;
  bool has_shared_;
  // Steps for which the rows are expected to be needed.
  static constexpr uint8_t kSteps = 16;
  struct Likely {
    Which which = Which::kNone;
    uint8_t steps = 0;
  };
  std::vector<Likely> likely_;  // [layer]
  size_t layer_ = 0;
  Which are_here_ = Which::kNone;
};

}  // namespace moestro
