// SPDX-License-Identifier: MIT
// Numbers of layers, experts, slots and copies that must not be mixed up, each with a type of its
// own.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace moestro {

template <class Tag, class Rep>
struct Id {
  Rep value{};
  auto operator<=>(const Id&) const = default;
};

using LayerId = Id<struct LayerTag, uint16_t>;  // of all layers of a model
// Counts the layers with experts alone, in order. Catalog, residency, policies, predictors and
// traces use these numbers only.
using ExpertLayerId = Id<struct ExpertLayerTag, uint16_t>;
using ExpertId = Id<struct ExpertTag, uint16_t>;
using SlotId = Id<struct SlotTag, uint32_t>;
using Token = int32_t;  // llama.cpp's llama_token

// One stored copy of an expert: an index into its list in ExpertCatalog. Copy 0 is the model's own,
// the one that exact mode uses.
using CopyId = uint8_t;
// Copy in a lower precision; not every expert has one.
inline constexpr CopyId kLowCopy = 1;

struct ExpertKey {
  ExpertLayerId layer;
  ExpertId expert;
  CopyId copy = 0;
  auto operator<=>(const ExpertKey&) const = default;
};

// The three matrices of a gated feed-forward expert, in the order they are needed.
enum class Matrix : uint8_t { kGate, kUp, kDown };
inline constexpr size_t kMatrices = 3;

}  // namespace moestro

template <>
struct std::hash<moestro::ExpertKey> {
  size_t operator()(const moestro::ExpertKey& key) const noexcept {
    return (static_cast<size_t>(key.layer.value) << 24) ^
           (static_cast<size_t>(key.expert.value) << 4) ^ size_t { key.copy };
  }
};
