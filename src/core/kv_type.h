// SPDX-License-Identifier: MIT
// What keys and values are stored as: all that differs from one type to another, by its bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/result.h"
#include "core/model_spec.h"

namespace moestro {

// Saved sequences have these numbers.
enum class KvType : uint8_t {
  kF16 = 0,
  kQ8 = 1,  // ggml's: 32 integers of 8 bits share a factor in F16
};

// The values of a block lie together: `block_bytes` for `block` of them.
struct KvTypeInfo {
  KvType type;
  std::string_view name;
  uint32_t block;
  uint32_t block_bytes;
};
inline constexpr std::array<KvTypeInfo, 2> kKvTypes = {
    {{.type = KvType::kF16, .name = "f16", .block = 1, .block_bytes = 2},
     {.type = KvType::kQ8, .name = "q8_0", .block = 32, .block_bytes = 34}}};

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
  return Fail(Errc::kUsage, "'{}' is no type of keys and values: f16, q8_0", text);
}

// Heads are read one by one, so each is whole blocks; kInvalidRequest if not.
inline Status CheckKvType(KvType type, const ModelSpec& spec) {
  const KvTypeInfo& info = InfoOf(type);
  if (spec.head_dim_k % info.block == 0 && spec.head_dim_v % info.block == 0) return {};
  return Fail(Errc::kInvalidRequest,
              "--kv-type {} stores blocks of {} values, and the heads of this model have {} in a "
              "key and {} in a value, no multiple of {}; leave it out to store them in {}",
              info.name, info.block, spec.head_dim_k, spec.head_dim_v, info.block,
              NameOf(KvType::kF16));
}

}  // namespace moestro
