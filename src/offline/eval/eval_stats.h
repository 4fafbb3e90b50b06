// SPDX-License-Identifier: MIT
// Statistics over rows of log-probabilities: how well a run predicts a text, and how far it is from
// the exact run. Pure: no engine, no file.
//
// Neighbouring tokens are alike (a hard sentence, a cold cache), so standard errors are those of
// blocks of kBlockTokens neighbours, never of single tokens, which would look too certain. A block
// lies within one window. With fewer than two blocks an error is not known (NaN).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "offline/shard_file.h"

namespace moestro {

inline constexpr size_t kBlockTokens = 64;

// The index of the largest value, the first of several.
size_t Largest(std::span<const float> values);

struct Estimate {
  double value = 0.0;
  double error = std::numeric_limits<double>::quiet_NaN();  // standard error
};

// Number of a block's tokens, and the sum of a figure over the tokens.
struct BlockSum {
  double tokens = 0.0;
  double sum = 0.0;
};
// The mean over tokens. Blocks differ in length, so the mean's error is that of a ratio of two sums
// over blocks.
Estimate MeanOver(std::span<const BlockSum> blocks);

struct EvalFigures {
  uint64_t tokens = 0;
  Estimate perplexity;
  // Comparison with the exact run, if the reference has its rows.
  struct Against {
    double exact_perplexity = 0.0;
    Estimate kl_mean;  // nats per token, as below
    Estimate kl_p99;
    Estimate kl_p999;
    double kl_max = 0.0;      // over all tokens; a maximum has no standard error
    Estimate delta_p_rms;     // root of the mean square change of the next token's probability
    Estimate top1_agreement;  // share of tokens with equal likeliest tokens in both runs
  };
  std::optional<Against> against;
};

// Sums over the tokens of a block. Sums against an exact run are 0 without an exact run.
struct EvalBlock {
  double tokens = 0.0;
  double nll = 0.0;  // of the next token, nats
  double exact_nll = 0.0;
  double kl = 0.0;
  double squared_delta_p = 0.0;
  double equal_top1 = 0.0;
  bool operator==(const EvalBlock&) const = default;
};

// Sums of some windows. Blocks are added in the order of the text, whether they come token by token
// or from other shards, so that figures are the same to the bit.
struct EvalSums {
  std::vector<EvalBlock> blocks = {};
  std::vector<float> kls = {};  // of each token; empty without an exact run
  double kl_max = 0.0;
};

class EvalStats {
 public:
  // Takes BytesFor(). REQUIRES: no more tokens, and no more blocks, are added.
  EvalStats(uint64_t tokens, uint64_t blocks);
  static uint64_t BytesFor(uint64_t tokens, uint64_t blocks);

  // Begins a window: later tokens share no block with earlier ones.
  void BeginWindow() { window_begins_ = true; }
  // Adds a row of log-probabilities, and the token that follows in the text. Either all rows come
  // with the exact run's, or none does.
  void Add(std::span<const float> log_probs, Token next);
  void Add(std::span<const float> log_probs, std::span<const float> exact, Token next);

  // Sums(): the sums of all rows added so far. REQUIRES: Figures() has not been called. Append():
  // adds the sums of the whole windows that follow in the text. REQUIRES: either all sums have a KL
  // for each token, or none has.
  EvalSums Sums() const;
  void Append(const EvalSums& sums);

  EvalFigures Figures();  // sorts the kept divergences

 private:
  // A token's KL, for quantiles. F32 as the rows are.
  struct Divergent {
    float kl = 0.0F;
    uint32_t block = 0;
  };

  EvalBlock& BlockOfNext();
  Estimate Mean(double EvalBlock::* sum) const;
  EvalFigures::Against Compare();
  double KlQuantile(double share) const;
  double KlQuantileError(double share) const;

  std::vector<EvalBlock> blocks_;
  std::vector<Divergent> divergent_;
  double kl_max_ = 0.0;
  bool window_begins_ = true;
};

// Confidence of a score, and a test whether two scores of the same items differ. Pure.

struct Interval {
  double low = 0.0;
  double high = 1.0;
};

// Wilson's interval: the shares that would give `right` of `items` or something more usual in 95 of
// 100 cases. 0 to 1 for no items. REQUIRES: right <= items.
Interval ShareInterval(uint64_t right, uint64_t items);

// McNemar's test, exact: probability of a split at least as uneven if both runs are equally good,
// of items that only one of two runs got right, `gained` by one and `lost` by the other. 1 for no
// such items.
double McNemar(uint64_t gained, uint64_t lost);

// Files of `eval --shard`, and the figures of all shards together. docs/shards.md describes the
// bytes.

std::string EncodeSums(const EvalSums& sums);

struct MergedEval {
  EvalFigures figures = {};
  uint64_t windows = 0;
};
// Returns the figures of the run over the whole text, to the bit. Errors: kInvalidFile, kIo.
// REQUIRES: the shards are those of FindShards(), of eval.
Result<MergedEval> MergeEval(std::span<const FoundShard> shards);

}  // namespace moestro
