// SPDX-License-Identifier: MIT
// Dense weights in anonymous memory, in the layout that multiplies fastest; or on a device, as they
// are in the file.
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
  // Only ever multiplied: may be stored in another layout. False for embeddings and vectors.
  bool only_multiplied = false;
};

// A weight with which each row of activations is multiplied on its own.
struct RowProduct {
  const ExpertKernel* kernel = nullptr;  // null: by ggml, one row after the other
  bool is_interleaved = false;           // as the kernel reads it fastest; else as in the file
  TeamTime* time = nullptr;              // where the kernel's time goes
  TileShares* shares = nullptr;          // of nodes whose first matrix this is; null: equal shares
};

struct WeightLayouts {
  bool allow_repack = true;  // false: every weight keeps its GGUF layout
  // A row of activations is multiplied to the same bits whatever rows are beside it.
  bool rows_alike = true;
};

class WeightSet {
 public:
  // Decides each weight's layout and what all of them take; allocates nothing yet. Quantised types
  // get that of our own kernels where there is one (docs/decisions/0020), else one of ggml's. F32,
  // F16 and BF16 keep their GGUF layout (0006). With rows_alike ggml multiplies nothing that a
  // trial has not passed (device/row_check.h), and of quantised types nothing in the GGUF layout,
  // but row by row (0007).
  static WeightSet Plan(const CpuDevice& device, std::vector<WeightRequest> requests,
                        const WeightLayouts& layouts);
  static WeightSet PlanOn(ggml_backend_t backend, std::vector<WeightRequest> requests);
  uint64_t bytes() const { return bytes_; }
  // It changes its layout: it must be read whole before it can be stored.
  bool is_repacked(size_t i) const { return buffer_of_[i] > 0 || is_interleaved(i); }

  // kNoMemory, kDevice. After this tensor(i) is valid until the set is destroyed.
  Status Allocate();
  ggml_tensor* tensor(size_t i) const { return tensors_[i]; }
  // Stores bytes in GGUF layout. A repacked weight takes offset 0 and all of its bytes. In memory:
  // any thread, several at a time for bytes that do not overlap; on a device: the engine thread.
  // kDevice; kNoMemory if changing the layout takes too much.
  Status Store(size_t i, uint64_t offset, std::span<const std::byte> bytes);
  size_t size() const { return requests_.size(); }

 private:
  // [request]: which of `types` holds it.
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
  std::vector<std::unique_ptr<TileShares>> shares_;        // the same, where kernels multiply
  uint64_t bytes_ = 0;
  bool is_on_device_ = false;
};

// How a weight, or a view of it, is multiplied (device/product_node.h); null: by ggml, all rows at
// once, or it is in no set. Lives as long as the weight's set.
const RowProduct* RowProductOf(const ggml_tensor* weight);

}  // namespace moestro
