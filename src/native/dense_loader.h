// SPDX-License-Identifier: MIT
// Loads dense weights from the file to the place of their use: all in memory, or weights of a
// device's graphs on the device and the rest in memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "compute/team.h"
#include "compute/weight_set.h"
#include "forward/dense/blocks.h"
#include "model/model_file.h"
#include "store/read_queue.h"

namespace moestro {

struct DensePlan {
  struct Part {
    WeightSet set;
    std::vector<const TensorInfo*> tensors;  // in the order of the set
  };
  Part host;
  Part device;                 // empty without a device
  uint64_t staging_bytes = 0;  // bytes needed while loading, freed afterwards

  Status Allocate();
};

// Plans all weights in memory, in `layouts`.
DensePlan PlanDense(const CpuDevice& device, const ModelWeights& weights,
                    const WeightLayouts& layouts);
// Plans the weights of graphs on `backend`, the rest in memory. An output matrix that is also the
// embedding is both on the device and in memory.
DensePlan PlanDenseOn(ggml_backend_t backend, const CpuDevice& device, const ModelWeights& weights);

// Reads every dense tensor, see weight_load.h. The team stores tensors in memory, the caller's
// thread stores the rest. `progress` gets the bytes done and the total. `sum` gets every tensor's
// part of the weights' number (model/weights_id.h); null: not needed. kIo, kNoMemory. REQUIRES:
// `queue` is idle.
Status LoadDense(DensePlan& plan, ReadQueue& queue, Team& team,
                 const std::function<void(uint64_t done, uint64_t total)>& progress,
                 std::atomic<uint64_t>* sum = nullptr);

// The loaded tensors by role.
ModelTensors TensorsByRole(const DensePlan& plan, const ModelWeights& weights);

}  // namespace moestro
