// SPDX-License-Identifier: MIT
// A decode of given tokens, for tests that compare what engines say and count.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/latency_model.h"
#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/prompts_testing.h"

namespace moestro {

struct GivenTokens {
  std::vector<uint32_t> prompts = {9};  // tokens of each sequence's prompt; 0: it has none
  uint32_t steps = 40;                  // after these, of one row of each sequence
  uint32_t prompt_seed = 3;             // of the first; others follow
  uint32_t seed = 4;
};

struct Decoded {
  Status status;
  uint32_t n_vocab = 0;
  std::vector<float> logits;  // [n_vocab] after each prompt, then [step][sequence][n_vocab]
  RunStats stats;
  DeviceStats device;
  LaneRatios lane_ratios = {};
  MemoryPlan memory;
};

inline Decoded DecodeGiven(const Result<std::unique_ptr<NativeEngine>>& opened,
                           const GivenTokens& given) {
  Decoded run;
  if (!opened) {
    run.status = std::unexpected(opened.error());
    return run;
  }
  NativeEngine& engine = **opened;
  run.n_vocab = engine.spec().n_vocab;
  const NativeEngine::LogitsSink sink = [&](size_t, std::span<const float> logits) {
    run.logits.append_range(logits);
  };
  const size_t n = given.prompts.size();
  std::vector<Sequence> sequences;
  for (uint32_t s = 0; s < n && run.status; ++s) {
    sequences.push_back(engine.NewSequence());
    if (given.prompts[s] == 0) continue;
    const std::vector<Token> prompt =
        SeededTokens(given.prompts[s], run.n_vocab, given.prompt_seed + s);
    run.status = engine.Step(RowsOf(sequences[s], prompt, RowKind::kPrompt), sink);
  }
  const std::vector<Token> tokens = SeededTokens(given.steps * n, run.n_vocab, given.seed);
  for (uint32_t step = 0; step < given.steps && run.status; ++step) {
    Batch batch;
    for (uint32_t s = 0; s < n; ++s) {
      batch.rows.push_back({.sequence = sequences[s].id(),
                            .position = given.prompts[s] + step,
                            .token = tokens[step * n + s],
                            .kind = RowKind::kDecode,
                            .wants_logits = true});
    }
    run.status = engine.Step(batch, sink);
  }
  run.stats = engine.stats();
  run.device = engine.learned().device;
  run.lane_ratios = engine.learned().lane_ratios;
  run.memory = engine.memory();
  return run;
}

inline Decoded DecodeGiven(const std::string& path, const EngineOptions& options,
                           const GivenTokens& given = {}) {
  return DecodeGiven(NativeEngine::Open(path, options), given);
}

}  // namespace moestro
