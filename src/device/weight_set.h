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
#include "device/cpu_device.h"
#include "device/expert_kernel.h"

namespace moestro {

struct WeightRequest {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::array<int64_t, 4> ne{1, 1, 1, 1};
  // Only ever multiplied: may be stored in another layout. False for embeddings and vectors.
  bool only_multiplied = false;
};

class WeightSet {
 public:
  // Decides each weight's layout and what all of them take; allocates nothing yet. Quantised types
  // get that of our own kernels where there is one (docs/decisions/0020), else one of ggml's. F32,
  // F16 and BF16 keep their GGUF layout (0006); with allow_repack = false every type does.
  static WeightSet Plan(const CpuDevice& device, std::vector<WeightRequest> requests,
                        bool allow_repack);
  static WeightSet PlanOn(ggml_backend_t backend, std::vector<WeightRequest> requests);
  uint64_t bytes() const { return bytes_; }
  // It changes its layout: it must be read whole before it can be stored.
  bool is_repacked(size_t i) const { return buffer_of_[i] > 0 || layout_of_[i] != nullptr; }

  // kNoMemory. After this tensor(i) is valid until the set is destroyed.
  Status Allocate();
  ggml_tensor* tensor(size_t i) const { return tensors_[i]; }
  // Stores bytes in GGUF layout. A repacked weight takes offset 0 and all of its bytes. In memory:
  // any thread, several at a time for bytes that do not overlap; on a device: the engine thread.
  void Store(size_t i, uint64_t offset, std::span<const std::byte> bytes);
  size_t size() const { return requests_.size(); }

 private:
  // [request]: which of `types` holds it.
  static WeightSet Plan(std::vector<WeightRequest> requests,
                        std::vector<ggml_backend_buffer_type_t> types,
                        std::vector<size_t> buffer_of);
  void LayOut(size_t i);

  std::vector<WeightRequest> requests_;
  std::vector<ggml_backend_buffer_type_t> types_;  // [0]: plain; then repacking ones
  std::vector<size_t> buffer_of_;                  // per weight, index into types_
  std::vector<ggml_context_ptr> contexts_;         // one per buffer type
  std::vector<ggml_backend_buffer_ptr> buffers_;
  std::vector<ggml_tensor*> tensors_;
  std::vector<std::unique_ptr<const ExpertKernel>> kernels_;
  std::vector<const ExpertKernel*> layout_of_;  // per weight, one of kernels_; null: ggml's
  uint64_t bytes_ = 0;
  bool is_on_device_ = false;
};

// The kernel in whose layout a weight lies, interleaved, and which alone can multiply it
// (device/product_node.h); null: ggml multiplies it. Lives as long as the weight's set.
const ExpertKernel* LayoutOf(const ggml_tensor* weight);

}  // namespace moestro
