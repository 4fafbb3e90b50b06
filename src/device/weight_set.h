// SPDX-License-Identifier: MIT
// Dense weights in anonymous memory, in the layout that multiplies fastest; or on a device, in the
// layout of the file.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/backend_calls.h"
#include "device/cpu_device.h"
#include "device/expert_kernel.h"
#include "device/team_time.h"
#include "device/tile_shares.h"

namespace moestro {

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
  // only in layouts that have passed a trial (device/row_check.h), and quantised types in the GGUF
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

// How a weight, or a view of a weight, is multiplied (device/product_node.h); null: by ggml, all
// rows at once, or the weight is in no set. Lives as long as the weight's set.
const RowProduct* RowProductOf(const ggml_tensor* weight);

}  // namespace moestro
