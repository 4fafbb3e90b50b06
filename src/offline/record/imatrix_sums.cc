// SPDX-License-Identifier: MIT
#include "offline/record/imatrix_sums.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/expert_tensors.h"

namespace moestro {
namespace {

void AddSquares(std::span<const float> values, std::span<double> sums) {
  for (size_t i = 0; i < values.size(); ++i) {
    sums[i] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
}

}  // namespace

ImatrixShape ImatrixShape::Of(const ModelSpec& spec) {
  return {.n_experts = spec.router.n_expert,
          .n_embd = spec.n_embd_expert(),
          .n_ff = spec.expert_widths()};
}

uint64_t ImatrixShape::columns() const {
  uint64_t columns = 0;  // of one expert in each layer
  for (const uint32_t width : n_ff) columns += uint64_t{width} + n_embd;
  return columns * n_experts;
}

ImatrixSums::ImatrixSums(ImatrixShape shape)
    : shape_(std::move(shape)), layers_(shape_.n_ff.size()) {
  const size_t experts = shape_.n_experts;
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].inputs.resize(experts * shape_.n_embd);
    layers_[l].products.resize(experts * shape_.n_ff[l]);
    layers_[l].counts.resize(experts);
  }
}

uint64_t ImatrixSums::BytesFor(const ImatrixShape& shape) {
  return shape.columns() * sizeof(double) + shape.n_ff.size() * shape.n_experts * sizeof(uint64_t);
}

void ImatrixSums::Add(const SeenExperts& seen) {
  Layer& layer = layers_[seen.plan.layer.value];
  const size_t n_embd = shape_.n_embd;
  const size_t n_ff = shape_.n_ff[seen.plan.layer.value];
  for (const PlannedExpert& expert : seen.plan.experts) {
    const size_t e = expert.key.expert.value;
    const auto inputs = std::span(layer.inputs).subspan(e * n_embd, n_embd);
    const auto products = std::span(layer.products).subspan(e * n_ff, n_ff);
    for (uint32_t i = 0; i < expert.n_pairs; ++i) {
      const size_t pair = expert.first_pair + i;
      const size_t row = seen.plan.row_of[pair];
      AddSquares(seen.inputs.subspan(row * n_embd, n_embd), inputs);
      AddSquares(seen.products.subspan(pair * n_ff, n_ff), products);
    }
    layer.counts[e] += expert.n_pairs;
  }
}

bool ImatrixSums::is_finite() const {
  const auto all_finite = [](std::span<const double> values) {
    return std::ranges::all_of(values,
                               [](double v) { return std::isfinite(static_cast<float>(v)); });
  };
  return std::ranges::all_of(layers_, [&](const Layer& layer) {
    return all_finite(layer.inputs) && all_finite(layer.products);
  });
}

Result<std::vector<ImatrixPlace>> PlacesOf(const GgufFile& file, const ModelSpec& spec) {
  std::vector<ImatrixPlace> places;
  for (uint32_t layer = 0; layer < spec.n_layer(); ++layer) {
    if (!spec.has_experts(layer)) continue;
    TRY(const auto tensors, FindExpertTensors(file, spec, layer, "convert the model again"));
    for (const ExpertTensor& tensor : tensors) {
      places.push_back({.name = tensor.info->name,
                        .matrix = tensor.matrix,
                        .layer = spec.expert_layers_before(layer),
                        .first_expert = tensor.first_expert,
                        .n_experts = tensor.n_experts});
    }
  }
  return places;
}

std::vector<ImatrixEntry> EntriesOf(std::span<const ImatrixPlace> places, const ImatrixSums& sums) {
  const ImatrixShape& shape = sums.shape();
  std::vector<ImatrixEntry> entries;
  for (const ImatrixPlace& place : places) {
    const bool is_down = place.matrix == Matrix::kDown;
    const uint32_t n_in = is_down ? shape.n_ff[place.layer] : shape.n_embd;
    const ImatrixSums::Layer& layer = sums.layer(place.layer);
    const std::span<const double> all = is_down ? layer.products : layer.inputs;
    entries.push_back(
        {.name = place.name,
         .n_in = n_in,
         .sums = all.subspan(size_t{place.first_expert} * n_in, size_t{place.n_experts} * n_in),
         .counts = std::span(layer.counts).subspan(place.first_expert, place.n_experts)});
  }
  return entries;
}

}  // namespace moestro
