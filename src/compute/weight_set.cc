// SPDX-License-Identifier: MIT
#include "compute/weight_set.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "compute/host_memory.h"
#include "compute/row_check.h"

namespace moestro {

namespace {

// Only quantised types have other layouts (docs/decisions/0006).
bool MayChangeLayout(const WeightRequest& request) {
  return request.only_multiplied && ggml_is_quantized(request.type);
}

// Whether the layout is for AMX, which multiplies many rows faster than any vector instruction.
bool HasTiles(ggml_backend_buffer_type_t type) {
  return std::string_view(ggml_backend_buft_name(type)) == "AMX";
}

// Whether the memory is ggml's plain one, in which no other code uses a tensor's `extra`.
bool IsPlain(ggml_backend_buffer_type_t type) { return type == ggml_backend_cpu_buffer_type(); }

// Decides the layout of one weight after the other. types: buffer types; the first is plain.
class LayoutChoices {
 public:
  LayoutChoices(const CpuDevice& device, std::span<const ggml_backend_buffer_type_t> types,
                const WeightLayouts& layouts)
      : device_(device), types_(types), layouts_(layouts), check_(device) {}

  struct Choice {
    size_t buffer = 0;
    std::optional<RowProduct> by_row;
  };
  Choice For(const WeightRequest& r) {
    if (r.type == GGML_TYPE_I32) return {};  // a table of numbers is looked up
    const bool may_change = MayChangeLayout(r) && layouts_.allow_repack;
    if (const size_t tiles = may_change ? FindBuffer(r, true) : 0; tiles > 0) {
      return {.buffer = tiles, .by_row = {}};
    }
    const bool is_plain = IsPlain(types_[0]);
    if (const ExpertKernel* own = is_plain ? OwnKernelFor(r.type) : nullptr; own != nullptr) {
      return {.by_row = OwnProduct(own, may_change)};
    }
    if (const ExpertKernel* own = is_plain ? RouterKernelFor(r) : nullptr; own != nullptr) {
      return {.by_row = OwnProduct(own, false)};
    }
    if (const size_t any = may_change ? FindBuffer(r, false) : 0; any > 0) {
      return {.buffer = any, .by_row = {}};
    }
    if (!layouts_.rows_alike || !is_plain) return {};
    if (!ggml_is_quantized(r.type) && Passes(r, 0)) return {};
    return {.by_row = RowProduct{}};
  }
  std::vector<std::unique_ptr<const ExpertKernel>> TakeKernels() { return std::move(kernels_); }

 private:
  bool Passes(const WeightRequest& r, size_t buffer) {
    return check_.Passes(
        {.type = r.type, .n_in = r.ne[0], .n_out = r.ne[1], .where = types_[buffer]});
  }
  // The first of ggml's layouts that will do; 0: none.
  size_t FindBuffer(const WeightRequest& r, bool has_tiles) {
    for (size_t i = 1; i < types_.size(); ++i) {
      if (HasTiles(types_[i]) != has_tiles) continue;
      if (!device_.CanMultiply(r.type, r.ne[0], r.ne[1], types_[i])) continue;
      if (!layouts_.rows_alike || Passes(r, i)) return i;
    }
    return 0;
  }
  // A kernel of ours with a layout of its own, which only quantised types have; null: none.
  const ExpertKernel* OwnKernelFor(ggml_type type) {
    if (!layouts_.allow_repack || !ggml_is_quantized(type)) return nullptr;
    return KernelFor(type, true);
  }
  // must_interleave: a kernel without a layout of its own counts as absent.
  const ExpertKernel* KernelFor(ggml_type type, bool must_interleave) {
    for (const auto& kernel : kernels_) {
      if (kernel->weight_type == type) return kernel.get();
    }
    const Result<ExpertKernel> found = FindExpertKernel(type);
    if (!found || (must_interleave && found->interleave == nullptr)) return nullptr;
    kernels_.push_back(std::make_unique<const ExpertKernel>(*found));
    return kernels_.back().get();
  }

  // A matrix with few outputs, such as a router, is multiplied by ggml's dot products in a node of
  // ours: that takes no longer, and a row's product has the same bits whatever rows are beside it.
  const ExpertKernel* RouterKernelFor(const WeightRequest& r) {
    constexpr int64_t kMostOutputs = 1024;
    if (!layouts_.allow_repack || !layouts_.rows_alike) return nullptr;
    if (r.type != GGML_TYPE_F32 || r.ne[1] > kMostOutputs) return nullptr;
    return KernelFor(r.type, false);
  }
  RowProduct OwnProduct(const ExpertKernel* kernel, bool is_interleaved) const {
    return {.kernel = kernel, .is_interleaved = is_interleaved, .time = &device_.team_time()};
  }

  const CpuDevice& device_;
  std::span<const ggml_backend_buffer_type_t> types_;
  WeightLayouts layouts_;
  RowCheck check_;
  std::vector<std::unique_ptr<const ExpertKernel>> kernels_;
};

}  // namespace

WeightSet WeightSet::Plan(const CpuDevice& device, std::vector<WeightRequest> requests,
                          const WeightLayouts& layouts) {
  std::vector<ggml_backend_buffer_type_t> types = {
      ggml_backend_get_default_buffer_type(device.backend())};
  types.append_range(device.repacking_buffer_types());
  LayoutChoices choices(device, types, layouts);
  std::vector<size_t> buffer_of;
  std::vector<std::unique_ptr<const RowProduct>> by_row;
  std::vector<std::unique_ptr<TileShares>> shares;
  for (const WeightRequest& r : requests) {
    auto choice = choices.For(r);
    buffer_of.push_back(choice.buffer);
    const bool has_kernel = choice.by_row && choice.by_row->kernel != nullptr;
    shares.push_back(has_kernel ? std::make_unique<TileShares>(device.threads()) : nullptr);
    if (has_kernel) choice.by_row->shares = shares.back().get();
    by_row.push_back(choice.by_row ? std::make_unique<const RowProduct>(*choice.by_row) : nullptr);
  }
  WeightSet set = Plan(std::move(requests), types, std::move(buffer_of));
  set.kernels_ = choices.TakeKernels();
  set.by_row_ = std::move(by_row);
  set.shares_ = std::move(shares);
  for (size_t i = 0; i < set.size(); ++i) {
    set.tensors_[i]->extra = const_cast<RowProduct*>(set.by_row_[i].get());
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
  set.by_row_.resize(set.requests_.size());
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
    Result<BufferPtr> allocated = AllocateTensors(contexts_[i].get(), types_[i]);
    if (!allocated && allocated.error().code == Errc::kNoMemory) {
      return Fail(Errc::kNoMemory, "cannot allocate {} bytes of dense weights", bytes_);
    }
    TRY(BufferPtr buffer, std::move(allocated));
    if (is_on_device_) {
      // Clearing makes a software device take the memory now: memory is planned by the process's
      // size.
      TRY_STATUS(ClearBuffer(buffer.get()));
    } else {
      AdviseHugePages(ggml_backend_buffer_get_base(buffer.get()),
                      ggml_backend_buffer_get_size(buffer.get()));
    }
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    buffers_.push_back(std::move(buffer));
  }
  return {};
}

Status WeightSet::Store(size_t i, uint64_t offset, std::span<const std::byte> bytes) {
  CHECK(offset + bytes.size() <= ggml_nbytes(tensors_[i]));
  CHECK(!is_repacked(i) || (offset == 0 && bytes.size() == ggml_nbytes(tensors_[i])));
  TRY_STATUS(CopyTo(tensors_[i], offset, bytes));
  if (!is_interleaved(i)) return {};
  return Caught([&]() -> Status { return LayOut(i); },
                [&](std::string_view why) {
                  return Fail(Errc::kNoMemory, "cannot lay out {}: {}", requests_[i].name, why);
                });
}

Status WeightSet::LayOut(size_t i) {
  const ggml_tensor* w = tensors_[i];
  std::vector<std::byte> scratch(ExpertKernel::kInterleavedRows * w->nb[1]);
  by_row_[i]->kernel->interleave(
      {.rows = static_cast<std::byte*>(w->data), .row_bytes = w->nb[1], .n_rows = w->ne[1]},
      scratch.data());
  return {};
}

const RowProduct* RowProductOf(const ggml_tensor* weight) {
  if (weight->view_src != nullptr) weight = weight->view_src;
  // Buffers of ggml's own layouts use `extra` themselves, and report that they are not host memory.
  if (weight->buffer == nullptr || !ggml_backend_buffer_is_host(weight->buffer)) return nullptr;
  return static_cast<const RowProduct*>(weight->extra);
}

}  // namespace moestro
