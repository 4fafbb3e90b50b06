// SPDX-License-Identifier: MIT
#include "offline/eval/eval_stats.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "base/result.h"
#include "base/text.h"
#include "text/divergence.h"

namespace moestro {
namespace {

constexpr int kResamples = 200;

}  // namespace

size_t Largest(std::span<const float> values) {
  return static_cast<size_t>(std::ranges::max_element(values) - values.begin());
}

Estimate MeanOver(std::span<const BlockSum> blocks) {
  double tokens = 0.0;
  double total = 0.0;
  for (const BlockSum& block : blocks) {
    tokens += block.tokens;
    total += block.sum;
  }
  Estimate mean;
  if (tokens == 0.0) return mean;
  mean.value = total / tokens;
  const auto n = static_cast<double>(blocks.size());
  if (n < 2.0) return mean;
  double squares = 0.0;
  for (const BlockSum& block : blocks) {
    const double off = block.sum - mean.value * block.tokens;
    squares += off * off;
  }
  mean.error = std::sqrt(squares * n / (n - 1.0)) / tokens;
  return mean;
}

EvalStats::EvalStats(uint64_t tokens, uint64_t blocks) {
  blocks_.reserve(blocks);
  divergent_.reserve(tokens);
}

uint64_t EvalStats::BytesFor(uint64_t tokens, uint64_t blocks) {
  // The last is for drawing blocks again.
  return tokens * sizeof(Divergent) + blocks * (sizeof(EvalBlock) + sizeof(uint32_t));
}

EvalBlock& EvalStats::BlockOfNext() {
  const bool is_full = blocks_.empty() || blocks_.back().tokens >= double{kBlockTokens};
  if (is_full || window_begins_) blocks_.emplace_back();
  window_begins_ = false;
  blocks_.back().tokens += 1.0;
  return blocks_.back();
}

void EvalStats::Add(std::span<const float> log_probs, Token next) {
  CHECK(divergent_.empty());
  BlockOfNext().nll -= log_probs[static_cast<size_t>(next)];
}

void EvalStats::Add(std::span<const float> log_probs, std::span<const float> exact, Token next) {
  CHECK(blocks_.empty() == divergent_.empty());
  const auto at = static_cast<size_t>(next);
  const double kl = Divergence(exact, log_probs);
  const double delta_p = std::exp(double{log_probs[at]}) - std::exp(double{exact[at]});
  EvalBlock& block = BlockOfNext();
  block.nll -= log_probs[at];
  block.exact_nll -= exact[at];
  block.kl += kl;
  block.squared_delta_p += delta_p * delta_p;
  block.equal_top1 += Largest(log_probs) == Largest(exact) ? 1.0 : 0.0;
  divergent_.push_back(
      {.kl = static_cast<float>(kl), .block = static_cast<uint32_t>(blocks_.size() - 1)});
  kl_max_ = std::max(kl_max_, kl);
}

EvalSums EvalStats::Sums() const {
  EvalSums sums{.blocks = blocks_, .kl_max = kl_max_};
  for (const Divergent& token : divergent_) sums.kls.push_back(token.kl);
  return sums;
}

void EvalStats::Append(const EvalSums& sums) {
  size_t token = 0;
  for (const EvalBlock& block : sums.blocks) {
    blocks_.push_back(block);
    const auto index = static_cast<uint32_t>(blocks_.size() - 1);
    for (double t = 0.0; t < block.tokens && token < sums.kls.size(); ++t) {
      divergent_.push_back({.kl = sums.kls[token++], .block = index});
    }
  }
  CHECK(token == sums.kls.size());
  kl_max_ = std::max(kl_max_, sums.kl_max);
  window_begins_ = true;
}

Estimate EvalStats::Mean(double EvalBlock::* sum) const {
  std::vector<BlockSum> blocks;
  for (const EvalBlock& block : blocks_)
    blocks.push_back({.tokens = block.tokens, .sum = block.*sum});
  return MeanOver(blocks);
}

// Interpolated as Quantile() of base/distribution.h does. REQUIRES: divergent_ is sorted, not
// empty.
double EvalStats::KlQuantile(double share) const {
  const double place = share * static_cast<double>(divergent_.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, divergent_.size() - 1);
  const double low = divergent_[below].kl;
  return low + (place - static_cast<double>(below)) * (divergent_[above].kl - low);
}

// Scatter of the quantile when as many blocks are drawn again, with replacement (bootstrap). Equal
// blocks get equal draws, so that a figure does not change from call to call. REQUIRES: divergent_
// is sorted, not empty.
double EvalStats::KlQuantileError(double share) const {
  if (blocks_.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  std::mt19937_64 random(1);
  std::vector<uint32_t> times(blocks_.size());
  double sum = 0.0;
  double squares = 0.0;
  for (int i = 0; i < kResamples; ++i) {
    std::ranges::fill(times, 0);
    double tokens = 0.0;
    for (size_t drawn = 0; drawn < blocks_.size(); ++drawn) {
      const size_t block = random() % blocks_.size();
      ++times[block];
      tokens += blocks_[block].tokens;
    }
    // Counts from the top, because the quantiles are near it.
    const double above = (1.0 - share) * (tokens - 1.0);
    size_t at = divergent_.size();
    for (double passed = 0.0; passed <= above && at > 0;) {
      passed += times[divergent_[--at].block];
    }
    const double kl = divergent_[at].kl;
    sum += kl;
    squares += kl * kl;
  }
  const double mean = sum / kResamples;
  return std::sqrt(std::max(0.0, squares / kResamples - mean * mean));
}

EvalFigures::Against EvalStats::Compare() {
  std::ranges::sort(divergent_, {}, &Divergent::kl);
  EvalFigures::Against against;
  against.exact_perplexity = std::exp(Mean(&EvalBlock::exact_nll).value);
  against.kl_mean = Mean(&EvalBlock::kl);
  against.kl_p99 = {.value = KlQuantile(0.99), .error = KlQuantileError(0.99)};
  against.kl_p999 = {.value = KlQuantile(0.999), .error = KlQuantileError(0.999)};
  against.kl_max = kl_max_;
  const Estimate square = Mean(&EvalBlock::squared_delta_p);
  const double root = std::sqrt(square.value);
  against.delta_p_rms = {.value = root,
                         .error = root > 0.0 ? square.error / (2.0 * root) : square.error};
  against.top1_agreement = Mean(&EvalBlock::equal_top1);
  return against;
}

EvalFigures EvalStats::Figures() {
  EvalFigures figures;
  for (const EvalBlock& block : blocks_) figures.tokens += static_cast<uint64_t>(block.tokens);
  const Estimate nll = Mean(&EvalBlock::nll);
  figures.perplexity.value = std::exp(nll.value);
  figures.perplexity.error = figures.perplexity.value * nll.error;
  if (!divergent_.empty()) figures.against = Compare();
  return figures;
}

namespace {

constexpr double kNormal95 = 1.959963984540054;  // 97.5 % quantile of the normal distribution

}  // namespace

Interval ShareInterval(uint64_t right, uint64_t items) {
  if (items == 0) return {};
  const auto n = static_cast<double>(items);
  const double share = static_cast<double>(right) / n;
  const double z2 = kNormal95 * kNormal95;
  const double middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
  const double half =
      kNormal95 / (1.0 + z2 / n) * std::sqrt(share * (1.0 - share) / n + z2 / (4.0 * n * n));
  return {.low = std::max(0.0, middle - half), .high = std::min(1.0, middle + half)};
}

double McNemar(uint64_t gained, uint64_t lost) {
  const auto n = static_cast<double>(gained + lost);
  double sum = 0.0;
  for (uint64_t k = 0; k <= std::min(gained, lost); ++k) {
    const auto chosen = static_cast<double>(k);
    sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(chosen + 1.0) -
                    std::lgamma(n - chosen + 1.0) - n * std::log(2.0));
  }
  return std::min(1.0, 2.0 * sum);
}

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
