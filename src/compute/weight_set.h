// SPDX-License-Identifier: MIT
// Dense weights in anonymous memory, in the layout that multiplies fastest; or on a device, in the
// layout of the file.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/backend_calls.h"
#include "compute/cpu_device.h"
#include "compute/expert_kernel.h"

namespace moestro {

// Divides the tiles of one product among threads. Each thread has a share of its own, one tile
// after the other, and takes the share in pieces that become smaller towards the end; a thread that
// has finished helps with the other shares. Two threads that read memory are seldom equally fast:
// with fixed shares the slower thread kept all others waiting.
//
// Memory order: claims are relaxed, since they pass no data on. Leaving acquires and releases, so
// that no claim of another thread comes after the reset (tests/memory_order/tile_shares.litmus).
//
// Thread rule: all threads of the team call Each(), once in each product. Between two products with
// one object the threads meet at a barrier.

class TileShares {
 public:
  explicit TileShares(uint32_t threads) : claimed_(threads) {}

  // Calls work(begin, end) for pieces of [0, tiles). The pieces of all threads together cover each
  // tile once. REQUIRES: n_threads is at most that of the constructor.
  template <class Work>
  void Each(int64_t tiles, int thread, int n_threads, Work&& work) {
    const Leaving leaving{*this, n_threads};
    for (int i = 0; i < n_threads; ++i) {
      const int owner = (thread + i) % n_threads;
      const int64_t begin = tiles * owner / n_threads;
      const int64_t end = tiles * (owner + 1) / n_threads;
      std::atomic<int64_t>& claimed = claimed_[static_cast<size_t>(owner)].tiles;
      while (true) {
        const int64_t left = end - begin - claimed.load(std::memory_order_relaxed);
        if (left <= 0) break;
        const int64_t piece = std::max(left / kPieces, kFewest);
        const int64_t at = begin + claimed.fetch_add(piece, std::memory_order_relaxed);
        if (at >= end) break;
        work(at, std::min(at + piece, end));
      }
    }
  }

 private:
  static constexpr int64_t kPieces = 3;  // a piece is one part in kPieces of the rest of a share
  static constexpr int64_t kFewest = 2;  // tiles that are worth a call

  struct alignas(64) Claimed {
    std::atomic<int64_t> tiles{0};
  };
  // Resets the shares when the last thread leaves, also after an exception of `work`.
  struct Leaving {
    TileShares& shares;
    int n_threads;
    ~Leaving() {
      if (shares.left_.fetch_add(1, std::memory_order_acq_rel) + 1 < n_threads) return;
      for (Claimed& its : shares.claimed_) its.tiles.store(0, std::memory_order_relaxed);
      shares.left_.store(0, std::memory_order_relaxed);
    }
  };
  std::vector<Claimed> claimed_;  // [thread]
  std::atomic<int> left_{0};      // threads that have finished
};

struct WeightRequest {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::array<int64_t, 4> ne{1, 1, 1, 1};
  // The weight is only multiplied, so it may be stored in another layout. False for embeddings and
  // vectors.
  bool only_multiplied = false;
};

// A weight with which each row of activations is multiplied on its own.
struct RowProduct {
  const ExpertKernel* kernel = nullptr;  // null: ggml multiplies, one row after the other
  bool is_interleaved = false;           // in the kernel's fastest layout; else as in the file
  TeamTime* time = nullptr;              // gets the kernel's time
  // Shares of nodes that begin with this matrix; null: equal shares.
  TileShares* shares = nullptr;
};

struct WeightLayouts {
  bool allow_repack = true;  // false: every weight keeps its GGUF layout
  // A row of activations is multiplied to the same bits whatever rows are beside it.
  bool rows_alike = true;
};

class WeightSet {
 public:
  // Decides each weight's layout and the bytes of all weights; allocates nothing yet. Quantised
  // types get the layout of our own kernels where a kernel has one (docs/decisions/0020), else one
  // of ggml's. F32, F16 and BF16 keep their GGUF layout (0006). With rows_alike ggml multiplies
  // only in layouts that have passed a trial (compute/row_check.h), and quantised types in the GGUF
  // layout only row by row (0007).
  static WeightSet Plan(const CpuDevice& device, std::vector<WeightRequest> requests,
                        const WeightLayouts& layouts);
  static WeightSet PlanOn(ggml_backend_t backend, std::vector<WeightRequest> requests);
  uint64_t bytes() const { return bytes_; }
  // Whether the weight's layout changes: the whole weight must be read before it can be stored.
  bool is_repacked(size_t i) const { return buffer_of_[i] > 0 || is_interleaved(i); }

  // kNoMemory, kDevice. After this tensor(i) is valid until the set is destroyed.
  Status Allocate();
  ggml_tensor* tensor(size_t i) const { return tensors_[i]; }
  // Stores bytes in GGUF layout. A repacked weight takes offset 0 and all of its bytes. In memory:
  // any thread, several at a time for bytes that do not overlap; on a device: the engine thread.
  // kDevice; kNoMemory: changing the layout takes too much memory.
  Status Store(size_t i, uint64_t offset, std::span<const std::byte> bytes);
  size_t size() const { return requests_.size(); }

 private:
  // buffer_of: [request], index into `types`.
  static WeightSet Plan(std::vector<WeightRequest> requests,
                        std::vector<ggml_backend_buffer_type_t> types,
                        std::vector<size_t> buffer_of);
  bool is_interleaved(size_t i) const {
    return by_row_[i] != nullptr && by_row_[i]->is_interleaved;
  }
  Status LayOut(size_t i);

  std::vector<WeightRequest> requests_;
  std::vector<ggml_backend_buffer_type_t> types_;  // [0]: plain; then repacking ones
  std::vector<size_t> buffer_of_;                  // per weight, index into types_
  std::vector<ggml_context_ptr> contexts_;         // one per buffer type
  std::vector<BufferPtr> buffers_;
  std::vector<ggml_tensor*> tensors_;
  std::vector<std::unique_ptr<const ExpertKernel>> kernels_;
  std::vector<std::unique_ptr<const RowProduct>> by_row_;  // per weight, see RowProductOf()
  std::vector<std::unique_ptr<TileShares>> shares_;        // per weight, where kernels multiply
  uint64_t bytes_ = 0;
  bool is_on_device_ = false;
};

// How a weight, or a view of a weight, is multiplied (compute/product_node.h); null: by ggml, all
// rows at once, or the weight is in no set. Lives as long as the weight's set.
const RowProduct* RowProductOf(const ggml_tensor* weight);

}  // namespace moestro
