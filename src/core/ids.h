// SPDX-License-Identifier: MIT
// Numbers that must not be mixed up, each with a type of its own.
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

using LayerId = Id<struct LayerTag, uint16_t>;
using ExpertId = Id<struct ExpertTag, uint16_t>;
using SlotId = Id<struct SlotTag, uint32_t>;
using Token = int32_t;  // llama.cpp's llama_token

// Which stored version of an expert. Exact mode knows only kHigh.
enum class Precision : uint8_t { kHigh, kLow };

struct ExpertKey {
  LayerId layer;
  ExpertId expert;
  Precision precision = Precision::kHigh;
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
           (static_cast<size_t>(key.expert.value) << 4) ^ static_cast<size_t>(key.precision);
  }
};
