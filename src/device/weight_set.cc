// SPDX-License-Identifier: MIT
#include "device/weight_set.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "device/host_memory.h"

namespace moestro {

namespace {

// Layouts differ for quantised types only: docs/decisions/0006.
bool MayChangeLayout(const WeightRequest& request) {
  return request.only_multiplied && ggml_is_quantized(request.type);
}

// It multiplies many rows faster than any vector instruction.
bool HasTiles(ggml_backend_buffer_type_t type) {
  return std::string_view(ggml_backend_buft_name(type)) == "AMX";
}

// The memory of ggml's whose tensors' `extra` nobody else uses.
bool IsPlain(ggml_backend_buffer_type_t type) { return type == ggml_backend_cpu_buffer_type(); }

// The kernel of `type` if it has a layout; made when it is not yet among `kernels`.
const ExpertKernel* OwnLayout(ggml_type type,
                              std::vector<std::unique_ptr<const ExpertKernel>>& kernels) {
  for (const auto& kernel : kernels) {
    if (kernel->weight_type == type) return kernel.get();
  }
  const Result<ExpertKernel> found = FindExpertKernel(type);
  if (!found || found->interleave == nullptr) return nullptr;
  kernels.push_back(std::make_unique<const ExpertKernel>(*found));
  return kernels.back().get();
}

}  // namespace

WeightSet WeightSet::Plan(const CpuDevice& device, std::vector<WeightRequest> requests,
                          bool allow_repack) {
  std::vector<ggml_backend_buffer_type_t> types = {
      ggml_backend_get_default_buffer_type(device.backend())};
  if (allow_repack) types.append_range(device.repacking_buffer_types());
  std::vector<size_t> buffer_of;
  for (const WeightRequest& r : requests) {
    size_t choice = 0;
    for (size_t i = 1; MayChangeLayout(r) && choice == 0 && i < types.size(); ++i) {
      if (device.CanMultiply(r.type, r.ne[0], r.ne[1], types[i])) choice = i;
    }
    buffer_of.push_back(choice);
  }
  std::vector<std::unique_ptr<const ExpertKernel>> kernels;
  std::vector<const ExpertKernel*> layout_of(requests.size(), nullptr);
  for (size_t i = 0; allow_repack && IsPlain(types[0]) && i < requests.size(); ++i) {
    if (!MayChangeLayout(requests[i]) || HasTiles(types[buffer_of[i]])) continue;
    layout_of[i] = OwnLayout(requests[i].type, kernels);
    if (layout_of[i] != nullptr) buffer_of[i] = 0;
  }
  WeightSet set = Plan(std::move(requests), std::move(types), std::move(buffer_of));
  set.kernels_ = std::move(kernels);
  for (size_t i = 0; i < set.size(); ++i) {
    set.layout_of_[i] = layout_of[i];
    if (layout_of[i] != nullptr) set.tensors_[i]->extra = const_cast<ExpertKernel*>(layout_of[i]);
  }
  return set;
}

WeightSet WeightSet::PlanOn(ggml_backend_t backend, std::vector<WeightRequest> requests) {
  std::vector<size_t> buffer_of(requests.size(), 0);
  WeightSet set = Plan(std::move(requests), {ggml_backend_get_default_buffer_type(backend)},
                       std::move(buffer_of));
  set.is_on_device_ = true;
  return set;
}

WeightSet WeightSet::Plan(std::vector<WeightRequest> requests,
                          std::vector<ggml_backend_buffer_type_t> types,
                          std::vector<size_t> buffer_of) {
  WeightSet set;
  set.requests_ = std::move(requests);
  set.types_ = std::move(types);
  set.buffer_of_ = std::move(buffer_of);
  set.layout_of_.assign(set.requests_.size(), nullptr);
  for (size_t i = 0; i < set.types_.size(); ++i) {
    const size_t room = (set.requests_.size() + 1) * ggml_tensor_overhead();
    set.contexts_.emplace_back(
        ggml_init({.mem_size = room, .mem_buffer = nullptr, .no_alloc = true}));
  }
  for (size_t i = 0; i < set.requests_.size(); ++i) {
    const WeightRequest& r = set.requests_[i];
    const size_t choice = set.buffer_of_[i];
    ggml_tensor* tensor =
        ggml_new_tensor(set.contexts_[choice].get(), r.type, GGML_MAX_DIMS, r.ne.data());
    ggml_set_name(tensor, r.name.c_str());
    set.tensors_.push_back(tensor);
    const uint64_t bytes = ggml_backend_buft_get_alloc_size(set.types_[choice], tensor);
    const uint64_t alignment = ggml_backend_buft_get_alignment(set.types_[choice]);
    set.bytes_ += (bytes + alignment - 1) / alignment * alignment;
  }
  return set;
}

Status WeightSet::Allocate() {
  for (size_t i = 0; i < types_.size(); ++i) {
    if (std::ranges::find(buffer_of_, i) == buffer_of_.end()) continue;
    ggml_backend_buffer_ptr buffer(
        ggml_backend_alloc_ctx_tensors_from_buft(contexts_[i].get(), types_[i]));
    if (!buffer) return Fail(Errc::kNoMemory, "cannot allocate {} bytes of dense weights", bytes_);
    if (is_on_device_) {
      // A software device takes it from the process, whose budget is planned by what it has taken.
      ggml_backend_buffer_clear(buffer.get(), 0);
    } else {
      AdviseHugePages(ggml_backend_buffer_get_base(buffer.get()),
                      ggml_backend_buffer_get_size(buffer.get()));
    }
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    buffers_.push_back(std::move(buffer));
  }
  return {};
}

void WeightSet::Store(size_t i, uint64_t offset, std::span<const std::byte> bytes) {
  CHECK(offset + bytes.size() <= ggml_nbytes(tensors_[i]));
  CHECK(!is_repacked(i) || (offset == 0 && bytes.size() == ggml_nbytes(tensors_[i])));
  ggml_backend_tensor_set(tensors_[i], bytes.data(), offset, bytes.size());
  if (layout_of_[i] != nullptr) LayOut(i);
}

void WeightSet::LayOut(size_t i) {
  const ggml_tensor* w = tensors_[i];
  std::vector<std::byte> scratch(ExpertKernel::kInterleavedRows * w->nb[1]);
  layout_of_[i]->interleave(
      {.rows = static_cast<std::byte*>(w->data), .row_bytes = w->nb[1], .n_rows = w->ne[1]},
      scratch.data());
}

const ExpertKernel* LayoutOf(const ggml_tensor* weight) {
  if (!IsPlain(ggml_backend_buffer_get_type(weight->buffer))) return nullptr;
  return static_cast<const ExpertKernel*>(weight->extra);
}

}  // namespace moestro
