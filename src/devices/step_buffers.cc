// SPDX-License-Identifier: MIT
#include "devices/step_buffers.h"

#include <algorithm>

#include "base/number.h"

namespace moestro {
namespace {

constexpr uint64_t kAlignment = 64;

}  // namespace

StepBuffers::Offsets StepBuffers::Layout(const ModelSpec& spec, const StepLimits& limits,
                                         ggml_backend_t backend) {
  const uint64_t rows = limits.chunk;
  const uint64_t alignment = backend == nullptr ? kAlignment : BackendBuffer::AlignmentOf(backend);
  const auto whole = [&](uint32_t width) {
    if (limits.whole_rows == 0) return uint64_t{0};
    return std::max(spec.n_expert_layers() * Stride(kFewRows, width, alignment),
                    kLayersOfMany * Stride(limits.whole_rows, width, alignment));
  };
  const std::array<uint64_t, kRegions> sizes = {
      rows * spec.n_embd * sizeof(float),
      backend != nullptr ? rows * spec.n_embd * sizeof(float) : 0,
      rows * spec.n_residual() * sizeof(float),
      spec.streams ? rows * spec.streams->n_weights() * sizeof(float) : 0,
      spec.any_layer(&ModelSpec::has_shared_result) ? rows * spec.n_embd * sizeof(float) : 0,
      rows * spec.n_embd * sizeof(float),
      rows * spec.router.n_expert * sizeof(float),
      rows * limits.look_ahead * spec.router.n_expert * sizeof(float),
      uint64_t{limits.logits_rows} * spec.n_vocab * sizeof(float),
      rows * sizeof(int32_t),
      rows * sizeof(int64_t),
      rows * sizeof(int64_t),
      whole(spec.router.n_expert),
      std::max(whole(spec.router.n_used),
               limits.whole_rows > 0
                   ? spec.n_expert_layers() * Stride(kFewRows, spec.router.n_expert, alignment)
                   : 0),
      whole(spec.router.n_used),
      whole(1),
      kBetweenLayers.size() * limits.whole_rows * spec.n_embd * sizeof(float),
  };
  Offsets offsets{};
  for (size_t i = 0; i < kRegions; ++i) offsets[i + 1] = offsets[i] + AlignUp(sizes[i], alignment);
  return offsets;
}

uint64_t StepBuffers::Stride(uint32_t rows, uint32_t width, uint64_t alignment) {
  return AlignUp(uint64_t{rows} * width * sizeof(float), alignment);
}

uint64_t StepBuffers::BytesFor(const ModelSpec& spec, const StepLimits& limits,
                               ggml_backend_t backend) {
  return Layout(spec, limits, backend).back();
}

Result<StepBuffers> StepBuffers::Allocate(const ModelSpec& spec, const StepLimits& limits,
                                          ggml_backend_t backend) {
  StepBuffers buffers;
  buffers.alignment_ = backend == nullptr ? kAlignment : BackendBuffer::AlignmentOf(backend);
  buffers.offsets_ = Layout(spec, limits, backend);
  TRY(buffers.host_, BackendBuffer::OnHost(buffers.offsets_.back()));
  if (backend != nullptr) {
    TRY(buffers.device_, BackendBuffer::On(backend, buffers.offsets_.back()));
  }
  return buffers;
}

void StepBuffers::Place(ggml_tensor* tensor, Region region, uint64_t skip_bytes) const {
  (device_ ? *device_ : host_).Place(tensor, offsets_[region] + skip_bytes);
}

Border::Write StepBuffers::ToDevice(Region region, uint64_t bytes) const {
  return {.to = device_->bytes(),
          .offset = offsets_[region],
          .from = {host_.data() + offsets_[region], bytes}};
}

Border::Read StepBuffers::ToMemory(Region region, uint64_t bytes, uint64_t skip_bytes) const {
  const uint64_t at = offsets_[region] + skip_bytes;
  return {.from = device_->bytes(), .offset = at, .to = {host_.data() + at, bytes}};
}

void StepBuffers::AddWholeBegin(uint64_t bytes, size_t n_regions, Border& border) const {
  for (size_t i = 0; i < n_regions; ++i) {
    border.reads.push_back({.from = device_->bytes(),
                            .offset = offsets_[kWholeBegin] + i * bytes,
                            .to = {host_.data() + offsets_[kBetweenLayers[i]], bytes}});
  }
}

}  // namespace moestro
