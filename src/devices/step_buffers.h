// SPDX-License-Identifier: MIT
// Buffers for values that pass between graphs, for up to a chunk of rows: always in memory, and for
// graphs on a device also on the device. Values cross between memory and device at the caller's
// borders.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "core/model_spec.h"
#include "devices/device_link.h"

namespace moestro {

struct StepLimits {
  uint32_t chunk = 1;        // rows at once
  uint32_t logits_rows = 1;  // rows of logits at once
  uint32_t look_ahead = 0;   // layers whose routers are evaluated ahead of time
  // Rows of steps whose layers the device may compute whole (whole_layers.h), at most; 0: none.
  uint32_t whole_rows = 0;
};

class StepBuffers {
 public:
  enum Region : uint8_t {
    kHidden,
    kPartial,
    kResidual,
    kShared,
    kFfnIn,
    kRouter,
    kAhead,
    kLogits,
    kPositions,
    kCells,
    kRecentCells,
    kWholeLogits,
    kWholeSlots,
    kWholeWeights,
    kWholeClear,
    kWholeBegin,
    kRegions
  };

  // kNoMemory. `backend`: the device where graphs run; null: they run in memory.
  static Result<StepBuffers> Allocate(const ModelSpec& spec, const StepLimits& limits,
                                      ggml_backend_t backend = nullptr);
  static uint64_t BytesFor(const ModelSpec& spec, const StepLimits& limits,
                           ggml_backend_t backend = nullptr);

  float* hidden() const { return At<float>(kHidden); }  // [rows][n_embd] enters a layer
  // [rows][n_embd] weighted results of experts beside the first device, which adds them to hidden;
  // of graphs on a device alone
  float* partial() const { return At<float>(kPartial); }
  float* residual() const { return At<float>(kResidual); }  // [rows][n_embd] after attention
  // [rows][n_embd] result of the shared expert
  float* shared() const { return At<float>(kShared); }
  float* ffn_in() const { return At<float>(kFfnIn); }   // [rows][n_embd_expert] experts' input
  float* router() const { return At<float>(kRouter); }  // [rows][n_expert] logits
  // [look_ahead][rows][n_expert] logits of the following layers' routers on this layer's input
  float* ahead() const { return At<float>(kAhead); }
  float* logits() const { return At<float>(kLogits); }  // [logits_rows][n_vocab]
  // Values of layers that a device computes whole, which wait there for a read: of all layers for
  // steps of few rows, of kLayersOfMany for others, half of them being computed. In each region lie
  // the values of one layer after the other: the router's logits [rows][n_expert], the chosen
  // experts' slots (at most [rows][n_expert]) and weights [rows][K], and of many rows
  // WholeLayers::Choice::clear [rows].
  static constexpr uint32_t kFewRows = 16;
  static constexpr uint16_t kLayersOfMany = 8;
  // Bytes from a layer's values to the next one's, for `width` values of a row.
  uint64_t WholeStride(uint32_t rows, uint32_t width) const {
    return Stride(rows, width, alignment_);
  }
  std::byte* whole(Region region) const { return host_.data() + offsets_[region]; }
  int32_t* positions() const { return At<int32_t>(kPositions); }
  int64_t* cells() const { return At<int64_t>(kCells); }  // rows of the KV cache to write
  // Rows to write in layers with cells of the last positions alone.
  int64_t* recent_cells() const { return At<int64_t>(kRecentCells); }

  // Gives a tensor of a graph its place in a region, on the device or in memory as the graphs run.
  void Place(ggml_tensor* tensor, Region region, uint64_t skip_bytes = 0) const;
  bool is_on_device() const { return device_.has_value(); }
  // The first `bytes` of a region, on their way from memory to the device or back. REQUIRES:
  // is_on_device().
  Border::Write ToDevice(Region region, uint64_t bytes) const;
  Border::Read ToMemory(Region region, uint64_t bytes, uint64_t skip_bytes = 0) const;
  // The rows before whole layers, kept for the case that the layers are computed again: hidden,
  // residual and shared, [3][rows][n_embd] in kWholeBegin, from there to their regions in memory.
  // `n_regions`: 1: hidden alone.
  void AddWholeBegin(uint64_t bytes, size_t n_regions, Border& border) const;
  static constexpr std::array<Region, 3> kBetweenLayers = {kHidden, kResidual, kShared};

 private:
  using Offsets = std::array<uint64_t, kRegions + 1>;
  static uint64_t Stride(uint32_t rows, uint32_t width, uint64_t alignment);
  static Offsets Layout(const ModelSpec& spec, const StepLimits& limits, ggml_backend_t backend);
  template <class T>
  T* At(Region region) const {
    return reinterpret_cast<T*>(host_.data() + offsets_[region]);
  }

  BackendBuffer host_;
  std::optional<BackendBuffer> device_;
  uint64_t alignment_ = 1;
  Offsets offsets_{};  // offsets in both buffers
};

}  // namespace moestro
