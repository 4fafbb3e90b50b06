// SPDX-License-Identifier: MIT
// Loads weights from their files into sets, and dense weights to the place of their use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/team.h"
#include "compute/weight_set.h"
#include "core/extent.h"
#include "forward/dense/blocks.h"
#include "model/model_file.h"
#include "store/read_queue.h"

namespace moestro {

// Loads weights from their files into a set. Many reads into a bounded part of memory are under
// way, while the threads of the team store (and so repack) the bytes that have landed.

// Bytes that are read and stored at once: a whole weight if its layout changes, else a part of the
// weight. Parts begin at a multiple of kDenseBlock (model/weights_id.h).
struct WeightPiece {
  size_t weight = 0;    // index of the weight in the set
  uint64_t offset = 0;  // in the weight
  Extent from;
};

// Cuts the weights of the set into pieces; the weights' bytes are at `from`. The longest pieces
// come first, so that no thread repacks a long piece alone at the end.
std::vector<WeightPiece> CutWeights(const WeightSet& set, std::span<const Extent> from);

// Bytes of staging memory with which these pieces load fast; less for few and small pieces. The
// memory holds any of the pieces beside two blocks of the loader.
uint64_t StagingFor(std::span<const WeightPiece> pieces);

struct WeightLoad {
  WeightSet& set;  // allocated
  std::span<const WeightPiece> pieces;
  ReadQueue& queue;              // REQUIRES: idle
  std::span<std::byte> staging;  // aligned to the queue's block. REQUIRES: the longest piece fits
  // null: the caller's thread alone stores, as a device's driver may require
  Team* team = nullptr;
  // Called in the caller's thread with the number of bytes stored so far.
  std::function<void(uint64_t bytes)> stored;
  // Called with each piece as it is in the file, by the thread that then stores the piece; may be
  // empty.
  std::function<void(const WeightPiece& piece, std::span<const std::byte> bytes)> landed = {};
};

// Reads and stores all pieces. kIo: the first read that failed for good; errors of Store(). After
// an error the set cannot be used. No read is under way after the return.
Status LoadWeights(const WeightLoad& load);

// Loads dense weights from the file to the place of their use: all in memory, or weights of a
// device's graphs on the device and the rest in memory.

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
