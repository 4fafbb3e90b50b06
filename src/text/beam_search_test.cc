// SPDX-License-Identifier: MIT
// Compares the search with one that ranks all texts at once, over logits made up from the tokens.
#include "text/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace moestro {
namespace {

using Tokens = std::vector<Token>;

// Logits that follow from all tokens before them; token 0 ends a text.
class Scripted final : public BeamRows {
 public:
  Scripted(uint32_t n_vocab, uint32_t seed, float end_bias)
      : n_vocab_(n_vocab), seed_(seed), end_bias_(end_bias) {}

  std::vector<float> Logits(const Tokens& text) const {
    uint32_t hash = seed_;
    for (const Token t : text) hash = hash * 1664525U + static_cast<uint32_t>(t) + 1013904223U;
    std::mt19937 random(hash);
    std::vector<float> logits;
    // Few values, so that ties happen.
    for (uint32_t i = 0; i < n_vocab_; ++i) logits.push_back(static_cast<float>(random() % 8));
    logits[0] += end_bias_;
    return logits;
  }

  Status Begin(std::span<const Token> prompt, const Sink& sink) override {
    rows_.assign(1, Tokens(prompt.begin(), prompt.end()));
    return Show(sink);
  }
  Status Advance(std::span<const uint32_t> parents, std::span<const Token> tokens,
                 const Sink& sink) override {
    if (++steps == fails_at) return Fail(Errc::kIo, "the disk is gone");
    if (steps == stops_at) return Fail(Errc::kInterrupted, "");
    std::vector<Tokens> next;
    for (size_t i = 0; i < parents.size(); ++i) {
      next.push_back(rows_.at(parents[i]));
      next.back().push_back(tokens[i]);
    }
    rows_ = std::move(next);
    return Show(sink);
  }

  int steps = 0;
  int fails_at = 0;
  int stops_at = 0;
  bool is_damaged = false;

 private:
  Status Show(const Sink& sink) const {
    for (size_t i = 0; i < rows_.size(); ++i) {
      std::vector<float> logits = Logits(rows_[i]);
      if (is_damaged) logits.back() = std::numeric_limits<float>::quiet_NaN();
      sink(i, logits);
    }
    return {};
  }

  uint32_t n_vocab_;
  uint32_t seed_;
  float end_bias_;
  std::vector<Tokens> rows_;
};

BeamCallbacks EndsAtZero() {
  return {.is_end = [](Token t) { return t == 0; }};
}

std::vector<double> LogProbs(const std::vector<float>& logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - most);
  std::vector<double> log_probs;
  for (const float l : logits) log_probs.push_back(static_cast<double>(l) - (most + std::log(sum)));
  return log_probs;
}

// The rules again, written as plainly as can be: every continuation of every beam in one list.
std::vector<std::pair<double, Tokens>> Reference(const Scripted& model, const Tokens& prompt,
                                                 const BeamOptions& options) {
  std::vector<std::pair<double, Tokens>> running = {{0.0, {}}};
  std::vector<std::pair<double, Tokens>> finished;  // score, tokens
  const auto score = [&](double log_prob, size_t n) {
    return log_prob / std::pow(static_cast<double>(n), options.length_penalty);
  };
  const auto by_score = [](const auto& a, const auto& b) { return a.first > b.first; };
  for (uint32_t length = 1;; ++length) {
    std::vector<std::pair<double, Tokens>> all;
    for (const auto& [log_prob, tokens] : running) {
      Tokens text = prompt;
      text.insert(text.end(), tokens.begin(), tokens.end());
      const std::vector<double> next = LogProbs(model.Logits(text));
      for (size_t t = 0; t < next.size(); ++t) {
        Tokens longer = tokens;
        longer.push_back(static_cast<Token>(t));
        all.emplace_back(log_prob + next[t], std::move(longer));
      }
    }
    std::ranges::stable_sort(all, by_score);
    all.resize(std::min<size_t>(all.size(), size_t{2} * options.beams));
    running.clear();
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const bool is_end = all[rank].second.back() == 0;
      if (is_end && rank < options.beams) {
        finished.emplace_back(score(all[rank].first, length), all[rank].second);
      }
      if (!is_end && running.size() < options.beams) running.push_back(all[rank]);
    }
    std::ranges::stable_sort(finished, by_score);
    finished.resize(std::min<size_t>(finished.size(), options.beams));
    if (running.empty()) return finished;
    if (length == options.max_tokens) {
      for (const auto& [log_prob, tokens] : running) {
        finished.emplace_back(score(log_prob, length), tokens);
      }
      std::ranges::stable_sort(finished, by_score);
      finished.resize(std::min<size_t>(finished.size(), options.beams));
      return finished;
    }
    const size_t best = options.length_penalty > 0 ? options.max_tokens : length;
    if (finished.size() == options.beams &&
        finished.back().first >= score(running.front().first, best)) {
      return finished;
    }
  }
}

TEST(BeamSearch, FindsWhatTheRulesSay) {
  int ended = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    for (const uint32_t beams : {1U, 2U, 3U, 5U, 8U}) {
      const BeamOptions options{.beams = beams,
                                .length_penalty = std::vector{1.0, 0.0, 2.0, -0.5}[seed % 4],
                                .max_tokens = 1 + seed % 9};
      Scripted model(6 + seed % 20, seed, static_cast<float>(seed % 5) - 1.0F);
      const Tokens prompt = {1, 2, static_cast<Token>(seed % 6)};
      const auto found = SearchBeams(model, EndsAtZero(), prompt, options);
      ASSERT_TRUE(found);
      const auto wanted = Reference(model, prompt, options);
      ASSERT_EQ(found->size(), wanted.size()) << seed << " " << beams;
      for (size_t i = 0; i < wanted.size(); ++i) {
        const Beam& beam = (*found)[i];
        EXPECT_EQ(beam.tokens, wanted[i].second) << seed << " " << beams << " " << i;
        EXPECT_NEAR(beam.score, wanted[i].first, 1e-9);
        EXPECT_EQ(beam.is_ended, beam.tokens.back() == 0);
        ended += beam.is_ended ? 1 : 0;
      }
    }
  }
  EXPECT_GT(ended, 100);
}

TEST(BeamSearch, OneBeamIsTheLikeliestTokenEachTime) {
  Scripted model(50, 4, -100.0F);
  const auto found = SearchBeams(model, EndsAtZero(), Tokens{3}, {.beams = 1, .max_tokens = 12});
  ASSERT_TRUE(found);
  Tokens text = {3};
  for (int i = 0; i < 12; ++i) {
    const std::vector<float> logits = model.Logits(text);
    text.push_back(static_cast<Token>(std::ranges::max_element(logits) - logits.begin()));
  }
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().tokens, Tokens(text.begin() + 1, text.end()));
}

TEST(BeamSearch, MoreBeamsThanTokens) {
  Scripted model(3, 1, 0.0F);
  const auto found = SearchBeams(model, EndsAtZero(), Tokens{1}, {.beams = 16, .max_tokens = 2});
  ASSERT_TRUE(found);
  // The end at once, and two tokens by three.
  EXPECT_EQ(found->size(), 7U);
}

TEST(BeamSearch, TheEndAtOnce) {
  Scripted model(9, 1, 100.0F);
  const auto found = SearchBeams(model, EndsAtZero(), Tokens{1}, {.beams = 1, .max_tokens = 50});
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().tokens, Tokens{0});
  EXPECT_TRUE(found->front().is_ended);
  EXPECT_EQ(model.steps, 0);
}

TEST(BeamSearch, WhatIsAgreedBeginsTheBest) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Scripted model(12, seed, 0.0F);
    Tokens agreed;
    BeamCallbacks parts = EndsAtZero();
    parts.agreed = [&](std::span<const Token> more) { agreed.append_range(more); };
    const auto found = SearchBeams(model, parts, Tokens{1}, {.beams = 3, .max_tokens = 15});
    ASSERT_TRUE(found);
    Tokens best = found->front().tokens;
    if (found->front().is_ended) best.pop_back();
    EXPECT_EQ(agreed, best) << seed;
  }
}

TEST(BeamSearch, AFailureIsPassedOnAndAStopEndsTheSearch) {
  Scripted broken(9, 1, -100.0F);
  broken.fails_at = 3;
  const BeamOptions options{.beams = 2, .max_tokens = 10};
  const auto failed = SearchBeams(broken, EndsAtZero(), Tokens{1}, options);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kIo);
  Scripted stopped(9, 1, -100.0F);
  stopped.stops_at = 3;
  const auto found = SearchBeams(stopped, EndsAtZero(), Tokens{1}, options);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ(found->front().tokens.size(), 3U);
  Scripted damaged(9, 1, 0.0F);
  damaged.is_damaged = true;
  const auto no_numbers = SearchBeams(damaged, EndsAtZero(), Tokens{1}, options);
  ASSERT_FALSE(no_numbers);
  EXPECT_EQ(no_numbers.error().code, Errc::kInvalidFile);
}

}  // namespace
}  // namespace moestro
