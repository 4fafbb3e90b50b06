// SPDX-License-Identifier: MIT
// Beam search over a real engine: token for token what a search finds that evaluates every beam by
// itself, from the first token on, and looks at all continuations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/prompts_testing.h"
#include "text/beam_search.h"

namespace moestro {
namespace {

constexpr const char* kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";
constexpr Token kEnd = 2;

using Tokens = std::vector<Token>;

std::unique_ptr<NativeEngine> Open(uint32_t sequences, double percent, uint32_t common = 0,
                                   uint32_t ctx = 64) {
  EngineOptions options;
  options.threads = 2;
  options.ctx = ctx;
  options.sequences = sequences;
  options.common_positions = common;
  options.cache = CacheSize{.percent = percent};
  auto engine = NativeEngine::Open(kDemo, options);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? *std::move(engine) : nullptr;
}

BeamCallbacks Parts() {
  return {.is_end = [](Token t) { return t == kEnd; }};
}

struct Hypothesis {
  double log_prob = 0.0;
  double score = 0.0;
  Tokens tokens;
};

// The logits after a text that is alone in its sequence, token by token, once for each text.
class LogitsAlone {
 public:
  explicit LogitsAlone(NativeEngine& engine) : engine_(engine) {}

  const std::vector<float>& After(const Tokens& prompt, const Tokens& tokens) {
    std::vector<float>& known = known_[{prompt, tokens}];
    if (!known.empty()) return known;
    Sequence sequence = engine_.NewSequence();
    auto logits = Append(engine_, sequence, prompt);
    for (const Token token : tokens) {
      EXPECT_TRUE(logits);
      logits = Append(engine_, sequence, {&token, 1});
    }
    EXPECT_TRUE(logits);
    known.assign(logits->begin(), logits->end());
    return known;
  }

 private:
  NativeEngine& engine_;
  std::map<std::pair<Tokens, Tokens>, std::vector<float>> known_;
};

// By itself: a new sequence for every text.
class OneByOne {
 public:
  OneByOne(LogitsAlone& alone, Tokens prompt, const BeamOptions& options)
      : alone_(alone), prompt_(std::move(prompt)), options_(options) {}

  std::vector<Hypothesis> Run() {
    std::vector<Hypothesis> running(1);
    std::vector<Hypothesis> finished;
    for (uint32_t length = 1;; ++length) {
      std::vector<Hypothesis> all;
      for (const Hypothesis& beam : running) Continue(beam, all);
      std::ranges::stable_sort(all, std::greater(), &Hypothesis::log_prob);
      all.resize(std::min<size_t>(all.size(), size_t{2} * options_.beams));
      running.clear();
      for (size_t rank = 0; rank < all.size(); ++rank) {
        const bool is_end = all[rank].tokens.back() == kEnd;
        if (is_end && rank < options_.beams) finished.push_back(all[rank]);
        if (!is_end && running.size() < options_.beams) running.push_back(all[rank]);
      }
      const bool is_full = length == options_.max_tokens;
      if (is_full) finished.insert(finished.end(), running.begin(), running.end());
      std::ranges::stable_sort(finished, std::greater(), &Hypothesis::score);
      finished.resize(std::min<size_t>(finished.size(), options_.beams));
      if (is_full || running.empty()) return finished;
      const double longest = options_.length_penalty > 0 ? options_.max_tokens : length;
      const double attainable =
          running.front().log_prob / std::pow(longest, options_.length_penalty);
      if (finished.size() == options_.beams && finished.back().score >= attainable) return finished;
    }
  }

 private:
  void Continue(const Hypothesis& beam, std::vector<Hypothesis>& all) {
    const std::vector<float>& logits = alone_.After(prompt_, beam.tokens);
    const double most = *std::ranges::max_element(logits);
    double sum = 0.0;
    for (const float l : logits) sum += std::exp(static_cast<double>(l) - most);
    const double log_sum = most + std::log(sum);
    // Of one beam no more than the best 2 * beams are among the best 2 * beams of all.
    std::vector<size_t> best(logits.size());
    std::ranges::iota(best, size_t{0});
    const auto kept = static_cast<std::ptrdiff_t>(size_t{2} * options_.beams);
    std::ranges::partial_sort(best, best.begin() + kept, [&](size_t a, size_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    best.resize(size_t{2} * options_.beams);
    for (const size_t t : best) {
      Hypothesis longer = beam;
      longer.tokens.push_back(static_cast<Token>(t));
      longer.log_prob += static_cast<double>(logits[t]) - log_sum;
      longer.score = longer.log_prob / std::pow(longer.tokens.size(), options_.length_penalty);
      all.push_back(std::move(longer));
    }
  }

  LogitsAlone& alone_;
  Tokens prompt_;
  BeamOptions options_;
};

void ExpectSame(const std::vector<Beam>& found, const std::vector<Hypothesis>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].tokens, wanted[i].tokens) << i;
    EXPECT_NEAR(found[i].log_prob, wanted[i].log_prob, 1e-6) << i;
    EXPECT_NEAR(found[i].score, wanted[i].score, 1e-6) << i;
  }
}

TEST(Beams, AreThoseOfASearchOneByOne) {
  const std::unique_ptr<NativeEngine> engine = Open(8, 100.0);
  ASSERT_TRUE(engine);
  const std::unique_ptr<NativeEngine> other = Open(1, 100.0);
  ASSERT_TRUE(other);
  LogitsAlone alone(*other);
  // "Once upon a time", and the end of a story.
  for (const Tokens& prompt : {Tokens{0, 449, 454, 259, 406}, Tokens{0, 449, 454}}) {
    for (const uint32_t beams : {1U, 2U, 4U, 7U}) {
      for (const double penalty : {1.0, 0.0}) {
        const BeamOptions options{.beams = beams, .length_penalty = penalty, .max_tokens = 10};
        EngineBeams rows(*engine);
        const auto found = SearchBeams(rows, Parts(), prompt, options);
        ASSERT_TRUE(found) << found.error().message;
        ExpectSame(*found, OneByOne(alone, prompt, options).Run());
      }
    }
  }
  // Texts of random tokens end at any place.
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const Tokens prompt = SeededTokens(6, engine->spec().n_vocab, seed);
    const BeamOptions options{.beams = 5, .length_penalty = 0.5, .max_tokens = 12};
    EngineBeams rows(*engine);
    const auto found = SearchBeams(rows, Parts(), prompt, options);
    ASSERT_TRUE(found) << found.error().message;
    ExpectSame(*found, OneByOne(alone, prompt, options).Run());
  }
}

// A quarter of the experts, and no more room for keys and values than was planned: the prompt once,
// what follows for each beam. The context is used up to its last position.
TEST(Beams, AreTheSameInAQuarterOfTheMemory) {
  constexpr uint32_t kPrompt = 37;
  const std::unique_ptr<NativeEngine> all = Open(6, 100.0);
  ASSERT_TRUE(all);
  const Tokens prompt = SeededTokens(kPrompt, all->spec().n_vocab, 8);
  const BeamOptions options{.beams = 6, .max_tokens = 64 - kPrompt + 1};
  EngineBeams rows(*all);
  const auto wanted = SearchBeams(rows, Parts(), prompt, options);
  ASSERT_TRUE(wanted) << wanted.error().message;
  const std::unique_ptr<NativeEngine> tight = Open(6, 25.0, kPrompt);
  ASSERT_TRUE(tight);
  EXPECT_LT(tight->memory().kv, all->memory().kv);
  EngineBeams tight_rows(*tight);
  const auto found = SearchBeams(tight_rows, Parts(), prompt, options);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->size(), wanted->size());
  for (size_t i = 0; i < found->size(); ++i) {
    EXPECT_EQ((*found)[i].tokens, (*wanted)[i].tokens);
    EXPECT_EQ((*found)[i].log_prob, (*wanted)[i].log_prob);  // to the bit
  }
  EXPECT_GT(tight->stats().decode.evictions, 50U);
  // A step of six rows reads an expert once: fewer requests than six times what one row needs.
  const PhaseStats& decode = tight->stats().decode;
  EXPECT_LT(decode.requests, decode.tokens * 6 * 4);
}

TEST(Beams, AStopInTheMiddleKeepsWhatWasFound) {
  const std::unique_ptr<NativeEngine> engine = Open(3, 100.0);
  ASSERT_TRUE(engine);
  int layers = 0;
  engine->SetRouteObserver([&](const SeenRouting&) {
    if (++layers == 6 * 5) engine->RequestStop();  // in the fifth step
  });
  EngineBeams rows(*engine);
  const Tokens prompt = {0, 449, 454, 259, 406};
  const auto found = SearchBeams(rows, Parts(), prompt, {.beams = 3, .max_tokens = 40});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->size(), 3U);
  EXPECT_LT(found->front().tokens.size(), 8U);
  // And the engine goes on working.
  engine->SetRouteObserver({});
  EXPECT_TRUE(SearchBeams(rows, Parts(), prompt, {.beams = 3, .max_tokens = 3}));
}

}  // namespace
}  // namespace moestro
