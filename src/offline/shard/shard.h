// SPDX-License-Identifier: MIT
// A share of a text's windows, so that several processes and machines can work on one text. Pure
// values.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/engine_options.h"

namespace moestro {

inline constexpr uint32_t kMostShards = 65536;

struct Shard {
  uint32_t index = 1;  // from 1 to count
  uint32_t count = 1;
  bool operator==(const Shard&) const = default;
};

// Parses "2/5". kUsage, naming the text, for anything else.
Result<Shard> ParseShard(const std::string& text);

// A range of windows; `end` is excluded.
struct WindowRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};
// The windows of a shard: neighbours, each window in exactly one shard; shares differ by one window
// at most. Empty where windows are fewer than shards. REQUIRES: windows < 2^48.
WindowRange WindowsOf(const Shard& shard, uint64_t windows);

// kUsage: with these options the results of a window depend on the windows before it, which another
// shard has.
Status CheckShardable(const EngineOptions& options);

// Settings that decide the results, a line each: "ctx 512". Settings of place and speed are left
// out. Commands add lines of their own.
struct WindowSettings {
  bool is_native = true;
  uint32_t n_ctx = 0;
};
std::string SettingsText(const EngineOptions& options, const WindowSettings& windows);

}  // namespace moestro
