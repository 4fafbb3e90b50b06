// SPDX-License-Identifier: MIT
#include "engine/recorded_routing.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/result.h"
#include "decide/layer/lossy_options.h"
#include "engine/append.h"

namespace moestro {
namespace {

// Puts zeros before and behind `values`, so that they begin at `front` of `all` values.
template <class T>
void Widen(std::vector<T>& values, size_t front, size_t all) {
  values.insert(values.begin(), front, T{});
  values.resize(all);
}

}  // namespace

RouteRecorder::RouteRecorder(Engine& engine, TraceInfo info, TraceSink sink)
    : engine_(engine),
      sequence_(engine.NewSequence()),
      info_(std::move(info)),
      sink_(std::move(sink)) {
  engine_.SetRouteObserver([this](const SeenRouting& seen) { See(seen); }, info_.depth,
                           info_.has_candidates);
}

RouteRecorder::~RouteRecorder() { engine_.SetRouteObserver({}); }

void RouteRecorder::See(const SeenRouting& seen) {
  const MoeShape& shape = info_.shape();
  layers_ = shape.layers_of(seen.layer.value < shape.n_encoder);
  CHECK(seen.layer.value == layers_.begin + seen_.size());
  seen_.push_back(
      {.phase = seen.kinds.front() == RowKind::kPrompt ? Phase::kPrefill : Phase::kDecode,
       .routing = seen.routing,
       .ahead = {seen.ahead.begin(), seen.ahead.end()},
       .ahead_weights = {seen.ahead_weights.begin(), seen.ahead_weights.end()}});
  if (seen_.size() < layers_.size()) return;
  if (seen.is_little) {
    TakeLittle();
  } else if (status_) {
    status_ = PassOn();
  }
  seen_.clear();
}

Status RouteRecorder::Record(std::span<const Token> tokens, size_t prefill) {
  sequence_.CutBack(0);
  seen_.clear();
  status_ = {};
  starts_sequence_ = true;
  const std::optional<EncoderSpec>& encoder = engine_.facts().encoder;
  if (encoder) {
    prefill = std::max<size_t>(prefill, SourceLength(tokens, encoder->source_end) + size_t{1});
  }
  prefill = std::min(prefill, tokens.size());
  for (size_t at = 0; at < tokens.size();) {
    const RowKind kind = at < prefill ? RowKind::kPrompt : RowKind::kDecode;
    const size_t n = at < prefill ? prefill - at : 1;
    if (info_.little > 0 && kind == RowKind::kDecode) TRY_STATUS(EvaluateLittle(tokens[at]));
    TRY_STATUS(engine_.Step(RowsOf(sequence_, tokens.subspan(at, n), kind), {}));
    TRY_STATUS(status_);
    at += n;
  }
  return {};
}

// Evaluates a token with fewer experts, and cuts the sequence back afterwards.
Status RouteRecorder::EvaluateLittle(Token token) {
  Batch batch = RowsOf(sequence_, {&token, 1}, RowKind::kDecode);
  batch.little.n_used = info_.little;
  TRY_STATUS(engine_.Step(batch, [this](size_t, std::span<const float> logits) {
    const double confidence = Confidence(logits);
    confidence_ = confidence > 0.0 ? static_cast<float>(confidence) : 0.0F;  // not for NaN
  }));
  return CutBackTo(engine_, sequence_, sequence_.position() - 1);
}

void RouteRecorder::TakeLittle() {
  little_ = RowsOfToken(0);
  little_.experts.clear();
  for (const Seen& layer : seen_) {
    const RoutingCandidates& candidates = layer.routing.candidates;
    little_.experts.append_range(candidates.row(0).experts.first(info_.shape().n_used));
  }
  const MoeShape& shape = info_.shape();
  Widen(little_.experts, size_t{layers_.begin} * shape.n_used,
        size_t{shape.n_layer} * shape.n_used);
}

RouteRecorder::Rows RouteRecorder::RowsOfToken(uint32_t token) const {
  Rows rows;
  for (const Seen& layer : seen_) {
    const Routing& routing = layer.routing;
    rows.experts.append_range(routing.experts_of(token));
    const std::span<const ExpertId> ahead = layer.ahead;
    for (size_t at = token; at * routing.n_used < ahead.size(); at += routing.n_tokens) {
      rows.predicted.append_range(ahead.subspan(at * routing.n_used, routing.n_used));
      // No weights where other routing than the model's stands in: the trace refuses the token.
      if (!info_.has_predicted_weights || layer.ahead_weights.empty()) continue;
      rows.predicted_weights.append_range(
          std::span(layer.ahead_weights).subspan(at * routing.n_used, routing.n_used));
    }
    if (info_.has_weights) rows.weights.append_range(routing.weights_of(token));
    if (info_.has_candidates) rows.candidates.Append(routing.candidates.row(token));
  }
  WidenToModel(seen_.front().routing.n_used, rows);
  return rows;
}

// rows: [layers_][used] -> [n_layer][used]
void RouteRecorder::WidenToModel(size_t used, Rows& rows) const {
  const size_t begin = layers_.begin;
  const size_t all = info_.shape().n_layer;
  const size_t ahead_begin = info_.predicted_rows_before(begin) * used;
  const size_t ahead_all = info_.predicted_rows() * used;
  const size_t candidates = info_.candidates();
  Widen(rows.experts, begin * used, all * used);
  if (info_.has_weights) Widen(rows.weights, begin * used, all * used);
  // A stack's only layer predicts none.
  const bool has_weights_ahead =
      info_.has_predicted_weights && rows.predicted_weights.size() == rows.predicted.size();
  if (has_weights_ahead) Widen(rows.predicted_weights, ahead_begin, ahead_all);
  Widen(rows.predicted, ahead_begin, ahead_all);
  if (!info_.has_candidates) return;
  Widen(rows.candidates.experts, begin * candidates, all * candidates);
  Widen(rows.candidates.scores, begin * candidates, all * candidates);
  Widen(rows.candidates.raw, begin * candidates, all * candidates);
  Widen(rows.candidates.ranges, begin, all);
}

// Rows of a little pass for a token of a prompt, which has none: the first of its own experts.
RouteRecorder::Rows RouteRecorder::LittleOfPrompt(const Rows& own) const {
  const size_t n_used = info_.shape().n_used;
  Rows rows{.experts = own.experts};
  for (size_t at = 0; at < own.weights.size(); at += n_used) {
    rows.weights.append_range(std::span(own.weights).subspan(at, info_.little));
  }
  for (size_t at = 0; at < own.predicted.size(); at += n_used) {
    rows.predicted.append_range(std::span(own.predicted).subspan(at, info_.little));
    if (own.predicted_weights.empty()) continue;
    rows.predicted_weights.append_range(std::span(own.predicted_weights).subspan(at, info_.little));
  }
  return rows;
}

// Passes on the tokens of a chunk, each with all its layers.
Status RouteRecorder::PassOn() {
  const Phase phase = seen_.front().phase;
  const uint32_t n_tokens = seen_.front().routing.n_tokens;
  for (uint32_t t = 0; t < n_tokens; ++t) {
    const Rows rows = RowsOfToken(t);
    TraceToken token{.phase = phase,
                     .starts_sequence = std::exchange(starts_sequence_, false),
                     .joins_step = t > 0,
                     .is_source = layers_.end <= info_.shape().n_encoder,
                     .experts = rows.experts,
                     .weights = rows.weights,
                     .predicted = rows.predicted,
                     .predicted_weights = rows.predicted_weights,
                     .candidates = rows.candidates.all()};
    if (info_.little > 0) {
      if (phase == Phase::kPrefill) little_ = LittleOfPrompt(rows);
      token.little = {.experts = little_.experts,
                      .weights = little_.weights,
                      .predicted = little_.predicted,
                      .predicted_weights = little_.predicted_weights,
                      .confidence = phase == Phase::kPrefill ? 1.0F : confidence_};
    }
    TRY_STATUS(sink_(token));
  }
  return {};
}

namespace {

// Our own graphs compute an expert once for a row.
Status CheckDistinct(const Trace& trace) {
  std::vector<ExpertId> sorted;
  for (size_t t = 0; t < trace.tokens() && trace.info().may_repeat; ++t) {
    const ExpertLayers layers = trace.layers_of(t);
    for (size_t l = layers.begin; l < layers.end; ++l) {
      sorted.assign_range(trace.experts(t, l));
      std::ranges::sort(sorted);
      const auto twice = std::ranges::adjacent_find(sorted);
      if (twice == sorted.end()) continue;
      return Fail(Errc::kInvalidRequest,
                  "layer {} of token {} names expert {} twice, as libllama's graphs of some models "
                  "do; such routing can be simulated, not run",
                  l, t, twice->value);
    }
  }
  return {};
}

}  // namespace

Result<TraceRouting> TraceRouting::Create(Trace trace, const ModelId& model) {
  if (trace.info().shape() != model.shape) {
    return Fail(Errc::kInvalidRequest, "the routing is of {}, the model is {}; their shapes differ",
                trace.info().model.text(), model.text());
  }
  Tokens sources;
  Tokens others;
  for (size_t t = 0; t < trace.tokens(); ++t) {
    (trace.is_source(t) ? sources : others).all.push_back(t);
  }
  if (others.all.empty() || (sources.all.empty() && model.shape.n_encoder > 0)) {
    return Fail(Errc::kInvalidRequest, "the routing has no tokens{}; record some",
                trace.tokens() == 0  ? ""
                : others.all.empty() ? " of a target"
                                     : " of a source");
  }
  TRY_STATUS(CheckDistinct(trace));
  return TraceRouting(std::move(trace), std::move(sources), std::move(others));
}

Status TraceRouting::CheckLittle(uint32_t n_used) const {
  const uint32_t recorded = trace_.info().little;
  if (recorded == n_used) return {};
  if (recorded == 0) {
    return Fail(Errc::kInvalidRequest,
                "the routing does not say what a pass with {} experts chooses; record it with "
                "'moestro trace --little {}'",
                n_used, n_used);
  }
  return Fail(Errc::kInvalidRequest,
              "the routing's little pass is of {} experts, not {}; record another with 'moestro "
              "trace --little {}'",
              recorded, n_used, n_used);
}

void TraceRouting::Begin(Tokens& tokens, size_t rows, bool is_little) {
  const bool is_same = std::exchange(was_little_, is_little) && !is_little;
  if (!is_same) tokens.first = tokens.next;
  tokens.next = (tokens.first + rows) % tokens.all.size();
}

void TraceRouting::Apply(ExpertLayerId layer, Routing& routing, RoutedAhead& ahead) {
  const size_t rows = routing.n_tokens;
  const size_t used = routing.n_used;
  const bool is_little = used < trace_.info().shape().n_used;
  const MoeShape& shape = trace_.info().shape();
  const bool is_source = layer.value < shape.n_encoder;
  Tokens& tokens = is_source ? sources_ : others_;
  if (layer.value == shape.layers_of(is_source).begin) Begin(tokens, rows, is_little);
  const size_t distances = ahead.experts.size() / (rows * used);
  const bool is_predicted = trace_.info().depth >= distances;
  const bool has_weights = is_predicted && trace_.info().has_predicted_weights;
  ahead.weights.resize(has_weights ? ahead.experts.size() : 0);
  for (size_t row = 0; row < rows; ++row) {
    const size_t t = tokens.of(row);
    ApplyRow(t, row, layer.value, routing);
    for (size_t d = 0; is_predicted && d < distances; ++d) {
      const auto at = static_cast<ptrdiff_t>((d * rows + row) * used);
      std::ranges::copy(Predicted(t, layer.value, d + 1, is_little), ahead.experts.begin() + at);
      if (!has_weights) continue;
      std::ranges::copy(is_little ? trace_.little_predicted_weights(t, layer.value, d + 1)
                                  : trace_.predicted_weights(t, layer.value, d + 1),
                        ahead.weights.begin() + at);
    }
  }
  if (!is_predicted) ahead.experts.clear();
}

std::span<const ExpertId> TraceRouting::Predicted(size_t t, size_t layer, size_t distance,
                                                  bool is_little) const {
  return is_little ? trace_.little_predicted(t, layer, distance)
                   : trace_.predicted(t, layer, distance);
}

void TraceRouting::ApplyRow(size_t t, size_t row, size_t layer, Routing& routing) const {
  const size_t used = routing.n_used;
  const bool is_little = used < trace_.info().shape().n_used;
  const std::span<const ExpertId> experts =
      is_little ? trace_.little_experts(t, layer) : trace_.experts(t, layer);
  const std::span<const float> recorded_weights =
      is_little ? trace_.little_weights(t, layer) : trace_.weights(t, layer);
  std::ranges::copy(experts.first(used),
                    routing.experts.begin() + static_cast<ptrdiff_t>(row * used));
  const std::span<float> weights = std::span(routing.weights).subspan(row * used, used);
  std::ranges::fill(weights, 1.0F / static_cast<float>(used));
  std::ranges::copy(recorded_weights, weights.begin());
  RoutingCandidates& candidates = routing.candidates;
  const auto at = static_cast<ptrdiff_t>(row * candidates.per_row);
  if (is_little) {  // a little pass records only the ids of its K best candidates
    std::ranges::copy(experts, candidates.experts.begin() + at);
    return;
  }
  if (!trace_.info().has_candidates || candidates.per_row == 0) return;
  const CandidateSpans recorded = trace_.candidates(t, layer);
  std::ranges::copy(recorded.experts, candidates.experts.begin() + at);
  std::ranges::copy(recorded.scores, candidates.scores.begin() + at);
  std::ranges::copy(recorded.raw, candidates.raw.begin() + at);
  candidates.ranges[row] = recorded.ranges[0];
}

}  // namespace moestro
