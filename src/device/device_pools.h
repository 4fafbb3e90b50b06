// SPDX-License-Identifier: MIT
// Slots for experts in a device's memory: for each form three tensors [n_in, n_out, slots], so that
// ggml's product by expert (mul_mat_id) takes slots for experts. Cleared at the start, with one
// slot to spare: kernels read past the end of a row.
//
// Thread rule: any thread may fill slots that no launch reads.
#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "device/backend_calls.h"
#include "device/devices.h"

namespace moestro {

class DevicePools {
 public:
  // The most slots of a form that one tensor may hold there.
  static uint64_t MostSlots(const ComputeDevice& device, const CopyForm& form);
  static uint64_t BytesFor(const CopyForm& form, uint64_t slots);
  // kNoMemory if the device refuses, kDevice. slots: by form; 0: none of that form.
  static Result<DevicePools> Allocate(const ComputeDevice& device, std::span<const CopyForm> forms,
                                      std::span<const uint64_t> slots);

  // [n_in, n_out, slots + 1]; null for a form without slots.
  ggml_tensor* tensor(uint32_t form, Matrix matrix) const {
    return tensors_[form][static_cast<size_t>(matrix)];
  }
  // Bytes of a slot in it, contiguous.
  static size_t SliceBytes(const ggml_tensor* tensor) { return tensor->nb[2]; }

 private:
  std::vector<ggml_context_ptr> contexts_;
  std::vector<BufferPtr> buffers_;
  std::vector<std::array<ggml_tensor*, kMatrices>> tensors_;  // by form
};

}  // namespace moestro
