// SPDX-License-Identifier: MIT
#include "device/device_pools.h"

#include <ggml-backend.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/bytes.h"

namespace moestro {
namespace {

struct MatrixShape {
  ggml_type type;
  int64_t n_in;
  int64_t n_out;

  uint64_t bytes() const { return ggml_row_size(type, n_in) * static_cast<uint64_t>(n_out); }
};

MatrixShape ShapeOf(const CopyForm& form, size_t m) {
  const bool is_down = static_cast<Matrix>(m) == Matrix::kDown;
  return {.type = static_cast<ggml_type>(form.types[m]),
          .n_in = is_down ? form.n_ff : form.n_embd,
          .n_out = is_down ? form.n_embd : form.n_ff};
}

constexpr uint64_t kSpare = 1;

}  // namespace

uint64_t DevicePools::MostSlots(const ComputeDevice& device, const CopyForm& form) {
  const uint64_t most_bytes =
      ggml_backend_buft_get_max_size(ggml_backend_get_default_buffer_type(device.backend()));
  // Kernels count a tensor's blocks with 31 bits.
  constexpr auto kBlocks = static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
  uint64_t most = std::numeric_limits<uint64_t>::max();
  for (size_t m = 0; m < kMatrices; ++m) {
    if (!form.has(m)) continue;
    const MatrixShape shape = ShapeOf(form, m);
    const uint64_t blocks = shape.bytes() / ggml_type_size(shape.type);
    most = std::min({most, most_bytes / shape.bytes(), kBlocks / blocks});
  }
  return most > kSpare ? most - kSpare : 0;
}

uint64_t DevicePools::BytesFor(const CopyForm& form, uint64_t slots) {
  uint64_t bytes = 0;
  for (size_t m = 0; m < kMatrices; ++m) {
    if (form.has(m)) bytes += (slots + kSpare) * ShapeOf(form, m).bytes();
  }
  return slots > 0 ? bytes : 0;
}

Result<DevicePools> DevicePools::Allocate(const ComputeDevice& device,
                                          std::span<const CopyForm> forms,
                                          std::span<const uint64_t> slots) {
  DevicePools pools;
  ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(device.backend());
  for (size_t f = 0; f < forms.size(); ++f) {
    std::array<ggml_tensor*, kMatrices>& tensors = pools.tensors_.emplace_back();
    for (size_t m = 0; m < kMatrices && slots[f] > 0; ++m) {
      if (!forms[f].has(m)) continue;
      const MatrixShape shape = ShapeOf(forms[f], m);
      const ggml_init_params params{
          .mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true};
      pools.contexts_.emplace_back(ggml_init(params));
      ggml_context* context = pools.contexts_.back().get();
      tensors[m] = ggml_new_tensor_3d(context, shape.type, shape.n_in, shape.n_out,
                                      static_cast<int64_t>(slots[f] + kSpare));
      Result<BufferPtr> buffer = AllocateTensors(context, type);
      if (!buffer && buffer.error().code == Errc::kNoMemory) {
        return Fail(Errc::kNoMemory, "the device {} has no {} for expert slots", device.info().name,
                    FormatBytes(ggml_nbytes(tensors[m])));
      }
      TRY(pools.buffers_.emplace_back(), std::move(buffer));
      ggml_backend_buffer_set_usage(pools.buffers_.back().get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
      TRY_STATUS(ClearBuffer(pools.buffers_.back().get()));
    }
  }
  return pools;
}

}  // namespace moestro
