// SPDX-License-Identifier: MIT
// Keys and values as plain values: the types of their numbers, and the cells that hold them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace moestro {

// Types that keys and values are stored in. All differences between two types are those of their
// row below.

// Types of keys and values. Files of saved sequences hold the numbers of the enumerators.
enum class KvType : uint8_t {
  kF16 = 0,
  kQ8 = 1,  // ggml's: 32 integers of 8 bits share a factor in F16
  kF32 = 2,
};

// The values of a block lie together: `block_bytes` for `block` of them.
struct KvTypeInfo {
  KvType type;
  std::string_view name;
  uint32_t block;
  uint32_t block_bytes;
};
inline constexpr std::array<KvTypeInfo, 3> kKvTypes = {
    {{.type = KvType::kF16, .name = "f16", .block = 1, .block_bytes = 2},
     {.type = KvType::kQ8, .name = "q8_0", .block = 32, .block_bytes = 34},
     {.type = KvType::kF32, .name = "f32", .block = 1, .block_bytes = 4}}};

constexpr const KvTypeInfo& InfoOf(KvType type) { return kKvTypes[std::to_underlying(type)]; }
constexpr std::string_view NameOf(KvType type) { return InfoOf(type).name; }

// REQUIRES: whole blocks.
constexpr uint64_t KvBytes(KvType type, uint64_t values) {
  return values / InfoOf(type).block * InfoOf(type).block_bytes;
}

// kUsage.
inline Result<KvType> ParseKvType(std::string_view text) {
  const auto* found = std::ranges::find(kKvTypes, text, &KvTypeInfo::name);
  if (found != kKvTypes.end()) return found->type;
  return Fail(Errc::kUsage, "'{}' is no type of keys and values: f16, q8_0, f32", text);
}

// Cells of a KV cache: each holds the key and the value of one position in every layer.

// Consecutive cells that hold consecutive positions of a sequence.
struct CellRun {
  uint32_t first = 0;
  uint32_t count = 0;
  bool operator==(const CellRun&) const = default;
};

}  // namespace moestro
