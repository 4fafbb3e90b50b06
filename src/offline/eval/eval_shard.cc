// SPDX-License-Identifier: MIT
#include "offline/eval/eval_shard.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/format.h"

namespace moestro {
namespace {

constexpr uint64_t kBlockBytes = 6 * sizeof(double);

// kInvalidFile: the file did not come from EncodeSums().
Result<EvalSums> DecodeSums(ShardPayload& payload, uint64_t windows) {
  EvalSums sums;
  TRY(const auto has_kls, payload.TakeNumber<uint32_t>());
  TRY(const auto blocks, payload.TakeNumber<uint64_t>());
  TRY(sums.kl_max, payload.TakeNumber<double>());
  if (has_kls > 1 || blocks < windows || blocks > payload.left() / kBlockBytes) {
    return payload.Damaged("its blocks are none of a run");
  }
  uint64_t tokens = 0;
  for (uint64_t i = 0; i < blocks; ++i) {
    TRY(const std::string bytes, payload.Take(kBlockBytes));
    Decoder decoder(bytes);
    EvalBlock& block = sums.blocks.emplace_back();
    for (double EvalBlock::* sum :
         {&EvalBlock::tokens, &EvalBlock::nll, &EvalBlock::exact_nll, &EvalBlock::kl,
          &EvalBlock::squared_delta_p, &EvalBlock::equal_top1}) {
      block.*sum = decoder.Take<double>();
    }
    const bool is_count = block.tokens >= 1.0 && block.tokens <= double{kBlockTokens} &&
                          std::floor(block.tokens) == block.tokens;
    if (!is_count) return payload.Damaged(Format("a block of {} tokens", block.tokens));
    tokens += static_cast<uint64_t>(block.tokens);
  }
  const uint64_t kls = has_kls == 1 ? tokens : 0;
  if (payload.left() != kls * sizeof(float)) {
    return payload.Damaged(Format("its {} tokens do not fill it", tokens));
  }
  sums.kls.resize(kls);
  TRY_STATUS(payload.TakeNumbers(std::span(sums.kls)));
  // Sorting the divergences needs numbers.
  const bool has_numbers = std::ranges::all_of(sums.kls, [](float kl) { return kl >= 0.0F; });
  if (!has_numbers || !(sums.kl_max >= 0.0)) return payload.Damaged("a divergence is none");
  return sums;
}

}  // namespace

std::string EncodeSums(const EvalSums& sums) {
  std::string bytes;
  AppendNumber(bytes, uint32_t{sums.kls.empty() ? 0U : 1U});
  AppendNumber(bytes, uint64_t{sums.blocks.size()});
  AppendNumber(bytes, sums.kl_max);
  for (const EvalBlock& block : sums.blocks) {
    for (const double sum : {block.tokens, block.nll, block.exact_nll, block.kl,
                             block.squared_delta_p, block.equal_top1}) {
      AppendNumber(bytes, sum);
    }
  }
  for (const float kl : sums.kls) AppendNumber(bytes, kl);
  return bytes;
}

Result<MergedEval> MergeEval(std::span<const FoundShard> shards) {
  EvalStats stats(0, 0);
  std::optional<bool> has_kls;
  for (const FoundShard& shard : shards) {
    const uint64_t windows = shard.info.range().size();
    if (windows == 0) continue;
    TRY(ShardPayload payload, ShardPayload::Open(shard));
    TRY(const EvalSums sums, DecodeSums(payload, windows));
    if (has_kls.value_or(!sums.kls.empty()) == sums.kls.empty()) {
      return payload.Damaged("only some of the shards are compared with an exact run");
    }
    has_kls = !sums.kls.empty();
    stats.Append(sums);
  }
  return MergedEval{.figures = stats.Figures(), .windows = shards.front().info.windows};
}

}  // namespace moestro
