// SPDX-License-Identifier: MIT
// Dense weights from the file into a WeightSet.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "device/weight_set.h"
#include "forward/dense/tensors.h"
#include "model/weights.h"
#include "store/read_queue.h"

namespace moestro {

struct DensePlan {
  WeightSet set;
  std::vector<const TensorInfo*> tensors;  // in the order of the set
  uint64_t staging_bytes = 0;              // needed while loading, given back afterwards
};

DensePlan PlanDense(const CpuDevice& device, const ModelWeights& weights, bool allow_repack);

// Reads every dense tensor; `progress` gets bytes done and in all. kIo, kNoMemory.
Status LoadDense(DensePlan& plan, ReadQueue& queue, uint64_t block,
                 const std::function<void(uint64_t done, uint64_t total)>& progress);

// The loaded tensors by role.
ModelTensors TensorsByRole(const DensePlan& plan, const ModelWeights& weights);

}  // namespace moestro
