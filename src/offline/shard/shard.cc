// SPDX-License-Identifier: MIT
#include "offline/shard/shard.h"

#include <optional>
#include <string_view>

#include "base/format.h"
#include "base/number.h"
#include "base/printable.h"

namespace moestro {

Result<Shard> ParseShard(const std::string& text) {
  const std::string_view all = text;
  const size_t slash = all.find('/');
  std::optional<uint64_t> index;
  std::optional<uint64_t> count;
  if (slash != std::string_view::npos) {
    index = ParseNumber<uint64_t>(all.substr(0, slash));
    count = ParseNumber<uint64_t>(all.substr(slash + 1));
  }
  if (!index || !count || *count < 1 || *count > kMostShards) {
    return Fail(Errc::kUsage, "'{}' is no shard; write I/N, as in 2/5, with N from 1 to {}",
                Printable(text), kMostShards);
  }
  if (*index < 1 || *index > *count) {
    return Fail(Errc::kUsage, "shard {} of {} does not exist; the first is 1/{}, the last {}/{}",
                *index, *count, *count, *count, *count);
  }
  return Shard{.index = static_cast<uint32_t>(*index), .count = static_cast<uint32_t>(*count)};
}

WindowRange WindowsOf(const Shard& shard, uint64_t windows) {
  return {.begin = windows * (shard.index - 1) / shard.count,
          .end = windows * shard.index / shard.count};
}

Status CheckShardable(const EngineOptions& options) {
  const LittleOptions& little = options.little;
  if (!options.lossy.is_exact(!options.low.empty())) {
    return Fail(Errc::kUsage,
                "--shard: with --low, --drop-below or --prefer-resident a window depends on what "
                "those before it left in memory; leave them out, or run the text as a whole");
  }
  if (little.is_on() && (little.misses != Misses::kRead || little.fallback_share)) {
    return Fail(Errc::kUsage,
                "--shard: with --little-misses or --gamma-quantile a window depends on what "
                "those before it left; leave them out, or run the text as a whole");
  }
  return {};
}

std::string SettingsText(const EngineOptions& options, const WindowSettings& windows) {
  std::string text =
      Format("engine {}\nctx {}\nkv-type {}\n", windows.is_native ? "native" : "hosted",
             windows.n_ctx, NameOf(options.kv_type));
  text += Format("little {}\n", ToText(options.little));
  if (options.little.is_on()) text += Format("gamma {}\n", options.little.gamma);
  return text;
}

}  // namespace moestro
