// SPDX-License-Identifier: MIT
// Recorded routing: the experts of each token of a run, layer by layer; if recorded, with the
// router's weights and with the experts that later layers' routers would have chosen ahead of time;
// and all of these for a little pass, in which every token had fewer experts. The simulator replays
// a trace, trace_file.h stores it.
//
// A trace is a value: it owns its data, and tokens are only added at the end. Thread rule: none of
// its own; const calls may come from several threads while no call adds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/machine.h"
#include "core/run_identity.h"

namespace moestro {

struct TraceInfo {
  ModelId model = {};
  uint64_t expert_bytes = 0;  // of one expert, on average; 0: unknown
  ExpertPools pools = {};     // where the model's own copies go, in the engine that recorded it
  // Costs of decode on the machine that recorded; nullopt: they were not measured.
  std::optional<MachineCosts> costs = {};
  uint32_t depth = 0;        // layers that predictions reach ahead, below n_layer; 0: none
  uint32_t little = 0;       // K', experts of a token's little pass, below K; 0: none is stored
  bool has_weights = false;  // every token carries router weights
  bool has_predicted_weights = false;  // every prediction carries the weights that it is based on
  bool has_candidates = false;         // every token carries the next best experts of its routers
  bool experts_guessed = false;        // n_expert is the highest id seen plus one: perhaps too low
  // Rows of K may name an expert several times: libllama's graphs of some families do so.
  bool may_repeat = false;
  // `joins_step` is recorded for tokens of prompts, too.
  bool has_prompt_steps = false;
  // The engine that recorded reads the next layer's experts during a layer of a prompt.
  bool reads_prompts_ahead = true;
  // First layers of which that engine reads experts ahead from the beginning of a step, since
  // tokens name them.
  uint32_t token_layers = 0;
  bool operator==(const TraceInfo&) const = default;

  const MoeShape& shape() const { return model.shape; }
  // Candidates of each layer of a token, the chosen K included; 0 without has_candidates.
  uint32_t candidates() const {
    return has_candidates ? CandidatesOf(shape().n_expert, shape().n_used) : 0;
  }

  // Rows of K predicted experts in one token: for each layer one for each distance from 1 to
  // `depth` that still meets a layer. REQUIRES: the counts are in range.
  size_t predicted_rows() const { return predicted_rows_before(shape().n_layer); }
  // Predicted rows of the layers below `layer`.
  size_t predicted_rows_before(size_t layer) const {
    // All layers but the last `depth` have `depth` rows; those have depth-1, ... 1, 0.
    const size_t full = shape().n_layer - depth;
    const size_t left = shape().n_layer - std::max(layer, full);
    return std::min(layer, full) * depth + (size_t{depth} * (depth - 1) - left * (left - 1)) / 2;
  }
};

enum class Phase : uint8_t { kDecode, kPrefill };

// Pass of a token with its first K' experts only, over the keys and values of a run with all K.
struct LittlePass {
  std::span<const ExpertId> experts = {};    // [n_layer][K], of which the first K' ran
  std::span<const float> weights = {};       // [n_layer][K']; empty without has_weights
  std::span<const ExpertId> predicted = {};  // [predicted_rows()][K']
  // The weights of `predicted`; empty without has_predicted_weights.
  std::span<const float> predicted_weights = {};
  float confidence = 1.0F;  // the largest probability of what comes next
};

// One token on its way into a trace, which copies it.
struct TraceToken {
  Phase phase = Phase::kDecode;
  bool starts_sequence = false;  // and no other sequence existed then
  bool joins_step = false;       // computed in one step with the token before it
  // The token belongs to a source, so it goes through the encoder's layers alone. Rows of layers
  // that a token does not go through hold no information.
  bool is_source = false;
  std::span<const ExpertId> experts = {};    // [n_layer][K], in router order where that is known
  std::span<const float> weights = {};       // [n_layer][K]; empty without has_weights
  std::span<const ExpertId> predicted = {};  // [predicted_rows()][K]: by layer, then by distance
  // The weights of `predicted`; empty without has_predicted_weights.
  std::span<const float> predicted_weights = {};
  CandidateSpans candidates = {};  // [n_layer]; empty without has_candidates
  LittlePass little = {};          // empty if TraceInfo::little is 0
};

// Takes tokens one after the other; its error ends the recording.
using TraceSink = std::function<Status(const TraceToken&)>;

class Trace {
 public:
  // An empty trace. kInvalidRequest, naming the value, if a count is out of range.
  static Result<Trace> Create(TraceInfo info);

  // Appends a token. kInvalidRequest, naming layer and value, and nothing is added: a span of the
  // wrong length, an id that is not below n_expert, an id twice in a row of K without may_repeat,
  // a confidence that is no probability.
  Status Add(const TraceToken& token);
  Status Check(const TraceToken& token) const;  // the error that Add() would return
  void Reserve(size_t tokens);                  // memory for so many

  const TraceInfo& info() const { return info_; }
  size_t tokens() const { return kinds_.size(); }

  // REQUIRES for all functions below: t < tokens(), layer < n_layer. Spans live until the next
  // Add().
  Phase phase(size_t t) const { return kinds_[t].phase; }
  bool starts_sequence(size_t t) const { return kinds_[t].starts_sequence; }
  bool joins_step(size_t t) const { return kinds_[t].joins_step; }
  bool is_source(size_t t) const { return kinds_[t].is_source; }
  // Layers that the token goes through. The rows below of all other layers hold no information.
  ExpertLayers layers_of(size_t t) const { return info_.shape().layers_of(is_source(t)); }
  // The K experts.
  std::span<const ExpertId> experts(size_t t, size_t layer) const {
    return std::span(experts_).subspan((t * info_.shape().n_layer + layer) * info_.shape().n_used,
                                       info_.shape().n_used);
  }
  // Their K weights in the same order; empty without has_weights.
  std::span<const float> weights(size_t t, size_t layer) const {
    if (!info_.has_weights) return {};
    return std::span(weights_).subspan((t * info_.shape().n_layer + layer) * info_.shape().n_used,
                                       info_.shape().n_used);
  }
  // The K experts that the router of layer + distance would choose on the router input of `layer`.
  // Empty where none are recorded: a distance outside 1 to depth, or past the last layer.
  std::span<const ExpertId> predicted(size_t t, size_t layer, size_t distance) const;
  // Weights of the predicted experts; empty without has_predicted_weights.
  std::span<const float> predicted_weights(size_t t, size_t layer, size_t distance) const;

  // Candidates of one layer; empty without has_candidates.
  CandidateSpans candidates(size_t t, size_t layer) const;

  // Choices of the little pass; REQUIRES: the trace has one (TraceInfo::little > 0). The K experts,
  // of which the first K' ran, the K' weights, and K' predicted experts as above.
  std::span<const ExpertId> little_experts(size_t t, size_t layer) const;
  std::span<const float> little_weights(size_t t, size_t layer) const;
  std::span<const ExpertId> little_predicted(size_t t, size_t layer, size_t distance) const;
  std::span<const float> little_predicted_weights(size_t t, size_t layer, size_t distance) const;
  float confidence(size_t t) const { return confidences_[t]; }

  TraceToken token(size_t t) const;  // all of the token's data

  bool operator==(const Trace&) const = default;

 private:
  struct Kind {
    Phase phase = Phase::kDecode;
    bool starts_sequence = false;
    bool joins_step = false;
    bool is_source = false;
    bool operator==(const Kind&) const = default;
  };

  explicit Trace(TraceInfo info);
  Status CheckSizes(const TraceToken& token) const;
  Status CheckExperts(ExpertLayers layers, std::span<const ExpertId> experts,
                      std::span<const ExpertId> predicted, size_t n_predicted) const;
  Status CheckCandidates(ExpertLayers layers, const CandidateSpans& all) const;
  Status CheckLittle(ExpertLayers layers, const LittlePass& little) const;
  bool is_predicted(size_t layer, size_t distance) const {
    return distance >= 1 && distance <= info_.depth && layer + distance < info_.shape().n_layer;
  }
  size_t row_of(size_t t, size_t layer, size_t distance) const {
    return t * info_.predicted_rows() + info_.predicted_rows_before(layer) + distance - 1;
  }

  TraceInfo info_;
  std::vector<Kind> kinds_;               // [token]
  std::vector<ExpertId> experts_;         // [token][layer][K]
  std::vector<float> weights_;            // [token][layer][K], or empty
  std::vector<ExpertId> predicted_;       // [token][predicted_rows][K]
  std::vector<float> predicted_weights_;  // [token][predicted_rows][K], or empty
  // Candidates, with has_candidates: [token][layer][candidates], and [token][layer] for ranges.
  std::vector<ExpertId> candidates_;
  std::vector<float> scores_;
  std::vector<float> raw_;
  std::vector<float> ranges_;
  // Members of a little pass.
  std::vector<ExpertId> little_experts_;         // [token][layer][K]
  std::vector<float> little_weights_;            // [token][layer][K'], or empty
  std::vector<ExpertId> little_predicted_;       // [token][predicted_rows][K']
  std::vector<float> little_predicted_weights_;  // [token][predicted_rows][K'], or empty
  std::vector<float> confidences_;               // [token]
};

// Routing that other tools recorded: a JSON object per line,
//   {"layers": [[id, id, ...], ...]}
// with the chosen experts of every layer. Other keys are ignored.

// One sequence of decode tokens without weights. `experts` per layer; nullopt: the highest id that
// occurs plus one, which is too low when the last experts were never chosen. kIo: cannot be read;
// kInvalidFile: names the line and what is wrong.
Result<Trace> ImportJsonl(const std::string& path, std::optional<uint32_t> experts);

}  // namespace moestro
