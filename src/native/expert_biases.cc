// SPDX-License-Identifier: MIT
#include "native/expert_biases.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/extent.h"
#include "store/open_files.h"

namespace moestro {
namespace {

using LayerBiases = std::array<const TensorInfo*, kMatrices>;

// Biases by layer with experts.
std::vector<LayerBiases> BiasesByLayer(const ModelWeights& weights) {
  std::vector<LayerBiases> layers;
  for (const LayerWeights& layer : weights.layers) {
    if (layer.experts.is_empty()) continue;
    layers.push_back({layer.gate_b, layer.up_b, layer.down_b});
  }
  return layers;
}

}  // namespace

DeviceBiases::Shape BiasShapeOf(const ModelFile& model) {
  DeviceBiases::Shape shape{.n_embd = model.spec.n_embd_expert(),
                            .n_expert = model.spec.router.n_expert,
                            .n_ff = model.spec.expert_widths()};
  for (const LayerBiases& layer : BiasesByLayer(model.weights)) {
    std::array<bool, kMatrices>& has = shape.has.emplace_back();
    for (size_t m = 0; m < kMatrices; ++m) has[m] = layer[m] != nullptr;
  }
  return shape;
}

Result<DeviceBiases> LoadBiasesOn(const ComputeDevice& device, const ModelFile& model) {
  TRY(const ExtentReader file, ExtentReader::Open(model.gguf.paths()));
  const std::vector<LayerBiases> layers = BiasesByLayer(model.weights);
  const auto source = [&](ExpertLayerId layer, Matrix matrix, std::span<std::byte> to) -> Status {
    const TensorInfo* bias = layers[layer.value][static_cast<size_t>(matrix)];
    TRY(const ExtentBytes read, file.Read(bias->extent));
    CHECK(read.bytes.size() == to.size());
    std::ranges::copy(read.bytes, to.begin());
    return {};
  };
  return DeviceBiases::Load(device, BiasShapeOf(model), source);
}

Result<DeviceProbe::Biases> ReadBiasesOf(ExpertKey key, const ModelFile& model) {
  DeviceProbe::Biases biases;
  const LayerBiases layer = BiasesByLayer(model.weights)[key.layer.value];
  TRY(const ExtentReader file, ExtentReader::Open(model.gguf.paths()));
  for (size_t m = 0; m < kMatrices; ++m) {
    if (layer[m] == nullptr) continue;
    // The bias of one expert is a row of the tensor [experts][n_out].
    Extent row = layer[m]->extent;
    row.length /= model.spec.router.n_expert;
    row.offset += key.expert.value * row.length;
    TRY(const ExtentBytes read, file.Read(row));
    biases[m].resize(read.bytes.size() / sizeof(float));
    std::memcpy(biases[m].data(), read.bytes.data(), read.bytes.size());
  }
  return biases;
}

}  // namespace moestro
