// SPDX-License-Identifier: MIT
// The rows of a layer that the CPU's experts need from a device: residual, shared and ffn_in, each
// [rows][n_embd]. Rows come back at the border of the router's logits if the layer's rows did in
// the last step, else at a border of their own, once the choice of experts is known.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "devices/device_link.h"
#include "devices/step_buffers.h"

namespace moestro {

class FetchedRows {
 public:
  // `buffers` must outlive this.
  FetchedRows(const StepBuffers& buffers, size_t n_layers, bool has_shared)
      : buffers_(&buffers), has_shared_(has_shared), were_fetched_(n_layers, false) {}

  // Adds the reads of the layer's rows to the border of its logits, if they are likely to be
  // needed. `bytes`: of the rows in one region.
  void AddLikely(size_t layer, uint64_t bytes, Border& border);
  // Copies the rows to memory, unless the last border has brought them. kDevice.
  Status Fetch(uint64_t bytes, DeviceLink& link);
  // All experts of the layer were computed on the device.
  void NoteUnused() { were_fetched_[layer_] = false; }

 private:
  void AddAll(uint64_t bytes, Border& border) const;

  const StepBuffers* buffers_;
  bool has_shared_;
  std::vector<bool> were_fetched_;  // [layer] in the last step
  size_t layer_ = 0;
  bool are_here_ = false;
};

}  // namespace moestro
