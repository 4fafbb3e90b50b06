// SPDX-License-Identifier: MIT
#include "trace/trace.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "trace/trace_machine.h"

namespace moestro {
namespace {

// Limit on layers and on experts: beyond any model, and tables of [layer][expert] stay small.
constexpr uint32_t kMaxCount = 4096;
constexpr size_t kMaxNameBytes = 4096;

Status CheckRow(std::span<const ExpertId> row, const TraceInfo& info,
                std::vector<ExpertId>& sorted) {
  const uint32_t n_expert = info.shape().n_expert;
  sorted.assign(row.begin(), row.end());
  std::ranges::sort(sorted);
  if (sorted.back().value >= n_expert) {
    return Fail(Errc::kInvalidRequest, "expert {} is out of range, there are 0 to {}",
                sorted.back().value, n_expert - 1);
  }
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice == sorted.end() || info.may_repeat) return {};
  return Fail(Errc::kInvalidRequest, "expert {} twice for one token", twice->value);
}

}  // namespace

Result<Trace> Trace::Create(TraceInfo info) {
  const auto wrong = [](const char* what, uint64_t value, uint64_t least, uint64_t most) {
    return Fail(Errc::kInvalidRequest, "a trace cannot have {} = {}, only {} to {}", what, value,
                least, most);
  };
  const auto& [n_layer, n_expert, n_used, n_encoder] = info.shape();
  if (n_layer < 1 || n_layer > kMaxCount) return wrong("layers", n_layer, 1, kMaxCount);
  if (n_expert < 1 || n_expert > kMaxCount) return wrong("experts", n_expert, 1, kMaxCount);
  if (n_used < 1 || n_used > n_expert) return wrong("experts of a token", n_used, 1, n_expert);
  if (n_encoder >= n_layer) return wrong("layers of an encoder", n_encoder, 0, n_layer - 1);
  if (info.token_layers > n_layer) {
    return wrong("layers whose experts tokens name", info.token_layers, 0, n_layer);
  }
  if (info.depth >= n_layer) return wrong("prediction depth", info.depth, 0, n_layer - 1);
  if (info.little >= n_used) return wrong("experts of a little pass", info.little, 0, n_used - 1);
  if (info.model.name.size() > kMaxNameBytes) {
    return wrong("bytes of the model's name", info.model.name.size(), 0, kMaxNameBytes);
  }
  TRY_STATUS(CheckPools(info.pools, info.shape()));
  return Trace(std::move(info));
}

Trace::Trace(TraceInfo info) : info_(std::move(info)) {}

Status Trace::Add(const TraceToken& token) {
  TRY_STATUS(Check(token));
  kinds_.push_back({.phase = token.phase,
                    .starts_sequence = token.starts_sequence,
                    .joins_step = token.joins_step,
                    .is_source = token.is_source});
  experts_.insert(experts_.end(), token.experts.begin(), token.experts.end());
  weights_.insert(weights_.end(), token.weights.begin(), token.weights.end());
  predicted_.insert(predicted_.end(), token.predicted.begin(), token.predicted.end());
  predicted_weights_.append_range(token.predicted_weights);
  candidates_.append_range(token.candidates.experts);
  scores_.append_range(token.candidates.scores);
  raw_.append_range(token.candidates.raw);
  ranges_.append_range(token.candidates.ranges);
  little_experts_.append_range(token.little.experts);
  little_weights_.append_range(token.little.weights);
  little_predicted_.append_range(token.little.predicted);
  little_predicted_weights_.append_range(token.little.predicted_weights);
  if (info_.little > 0) confidences_.push_back(token.little.confidence);
  return {};
}

Status Trace::CheckCandidates(ExpertLayers layers, const CandidateSpans& all) const {
  const size_t per_layer = info_.candidates();
  const size_t n = per_layer * info_.shape().n_layer;
  if (all.experts.size() != n || all.scores.size() != n || all.raw.size() != n ||
      all.ranges.size() != (n > 0 ? info_.shape().n_layer : 0)) {
    return Fail(Errc::kInvalidRequest, "{} candidates; a token of this trace has {}",
                all.experts.size(), n);
  }
  const auto is_number = [](float value) { return std::isfinite(value); };
  // Minus infinity: the router's groups exclude the expert.
  const auto is_score = [](float value) { return value < std::numeric_limits<float>::infinity(); };
  if (!std::ranges::all_of(all.scores, is_score) || !std::ranges::all_of(all.raw, is_number) ||
      !std::ranges::all_of(all.ranges, is_number)) {
    return Fail(Errc::kInvalidRequest, "a candidate's score is not a number");
  }
  std::vector<ExpertId> sorted;
  for (size_t layer = layers.begin; layer < layers.end && n > 0; ++layer) {
    TRY_STATUS(CheckRow(all.experts.subspan(layer * per_layer, per_layer), info_, sorted));
  }
  return {};
}

Status Trace::CheckSizes(const TraceToken& token) const {
  const size_t n_experts = info_.shape().n_layer * size_t{info_.shape().n_used};
  const size_t n_weights = info_.has_weights ? n_experts : 0;
  const size_t n_predicted = info_.predicted_rows() * info_.shape().n_used;
  if (token.experts.size() != n_experts || token.weights.size() != n_weights ||
      token.predicted.size() != n_predicted) {
    return Fail(Errc::kInvalidRequest,
                "{} experts, {} weights and {} predicted experts; a token of this trace has {}, "
                "{} and {}",
                token.experts.size(), token.weights.size(), token.predicted.size(), n_experts,
                n_weights, n_predicted);
  }
  const LittlePass& little = token.little;
  const auto has_as_many = [this](std::span<const float> weights, std::span<const ExpertId> of) {
    return weights.size() == (info_.has_predicted_weights ? of.size() : 0);
  };
  if (!has_as_many(token.predicted_weights, token.predicted) ||
      !has_as_many(little.predicted_weights, little.predicted)) {
    return Fail(Errc::kInvalidRequest, "{} and {} weights of predictions; a token of this trace {}",
                token.predicted_weights.size(), little.predicted_weights.size(),
                info_.has_predicted_weights ? "has one for each expert" : "has none");
  }
  const auto is_number = [](float weight) { return std::isfinite(weight); };
  if (!std::ranges::all_of(token.predicted_weights, is_number) ||
      !std::ranges::all_of(little.predicted_weights, is_number)) {
    return Fail(Errc::kInvalidRequest, "a prediction's weight is not a number");
  }
  const size_t n_little = info_.little > 0 ? n_experts : 0;
  const size_t n_little_weights =
      info_.has_weights ? size_t{info_.shape().n_layer} * info_.little : 0;
  const size_t n_ahead = info_.predicted_rows() * info_.little;
  if (little.experts.size() != n_little || little.weights.size() != n_little_weights ||
      little.predicted.size() != n_ahead) {
    return Fail(Errc::kInvalidRequest,
                "{} experts, {} weights and {} predicted experts of a little pass; a token of this "
                "trace has {}, {} and {}",
                little.experts.size(), little.weights.size(), little.predicted.size(), n_little,
                n_little_weights, n_ahead);
  }
  return {};
}

// experts: [n_layer][K]; predicted: [predicted_rows()][n_predicted].
Status Trace::CheckExperts(ExpertLayers layers, std::span<const ExpertId> experts,
                           std::span<const ExpertId> predicted, size_t n_predicted) const {
  const size_t n_used = info_.shape().n_used;
  std::vector<ExpertId> sorted;
  size_t at = info_.predicted_rows_before(layers.begin);
  for (size_t layer = layers.begin; layer < layers.end; ++layer) {
    const Status row = CheckRow(experts.subspan(layer * n_used, n_used), info_, sorted);
    if (!row) return Fail(row.error().code, "layer {}: {}", layer, row.error().message);
    for (size_t end = info_.predicted_rows_before(layer + 1); at < end; ++at) {
      const Status ahead =
          CheckRow(predicted.subspan(at * n_predicted, n_predicted), info_, sorted);
      if (!ahead) {
        return Fail(ahead.error().code, "layer {}'s predictions: {}", layer, ahead.error().message);
      }
    }
  }
  return {};
}

Status Trace::CheckLittle(ExpertLayers layers, const LittlePass& little) const {
  if (info_.little == 0) return {};
  if (!(little.confidence >= 0.0F && little.confidence <= 1.0F)) {
    return Fail(Errc::kInvalidRequest, "a confidence of {} is no probability", little.confidence);
  }
  const Status experts = CheckExperts(layers, little.experts, little.predicted, info_.little);
  if (experts) return {};
  return Fail(experts.error().code, "little pass, {}", experts.error().message);
}

Status Trace::Check(const TraceToken& token) const {
  const MoeShape& shape = info_.shape();
  if (token.is_source && shape.n_encoder == 0) {
    return Fail(Errc::kInvalidRequest, "a token of a source, and the model has no encoder");
  }
  if (token.is_source && token.phase == Phase::kDecode) {
    return Fail(Errc::kInvalidRequest, "a token of a source that decodes");
  }
  const ExpertLayers layers = shape.layers_of(token.is_source);
  TRY_STATUS(CheckCandidates(layers, token.candidates));
  TRY_STATUS(CheckSizes(token));
  TRY_STATUS(CheckExperts(layers, token.experts, token.predicted, shape.n_used));
  return CheckLittle(layers, token.little);
}

std::span<const ExpertId> Trace::predicted(size_t t, size_t layer, size_t distance) const {
  if (!is_predicted(layer, distance)) return {};
  const size_t used = info_.shape().n_used;
  return std::span(predicted_).subspan(row_of(t, layer, distance) * used, used);
}

std::span<const float> Trace::predicted_weights(size_t t, size_t layer, size_t distance) const {
  if (!info_.has_predicted_weights || !is_predicted(layer, distance)) return {};
  const size_t used = info_.shape().n_used;
  return std::span(predicted_weights_).subspan(row_of(t, layer, distance) * used, used);
}

std::span<const ExpertId> Trace::little_experts(size_t t, size_t layer) const {
  const size_t n_used = info_.shape().n_used;
  return std::span(little_experts_).subspan((t * info_.shape().n_layer + layer) * n_used, n_used);
}

std::span<const float> Trace::little_weights(size_t t, size_t layer) const {
  if (!info_.has_weights) return {};
  return std::span(little_weights_)
      .subspan((t * info_.shape().n_layer + layer) * info_.little, info_.little);
}

std::span<const ExpertId> Trace::little_predicted(size_t t, size_t layer, size_t distance) const {
  if (!is_predicted(layer, distance)) return {};
  return std::span(little_predicted_)
      .subspan(row_of(t, layer, distance) * info_.little, info_.little);
}

std::span<const float> Trace::little_predicted_weights(size_t t, size_t layer,
                                                       size_t distance) const {
  if (!info_.has_predicted_weights || !is_predicted(layer, distance)) return {};
  return std::span(little_predicted_weights_)
      .subspan(row_of(t, layer, distance) * info_.little, info_.little);
}

CandidateSpans Trace::candidates(size_t t, size_t layer) const {
  const size_t n = info_.candidates();
  if (n == 0) return {};
  const size_t row = t * info_.shape().n_layer + layer;
  return {.experts = std::span(candidates_).subspan(row * n, n),
          .scores = std::span(scores_).subspan(row * n, n),
          .raw = std::span(raw_).subspan(row * n, n),
          .ranges = std::span(ranges_).subspan(row, 1)};
}

void Trace::Reserve(size_t tokens) {
  const size_t n = tokens * info_.shape().n_layer * info_.shape().n_used;
  kinds_.reserve(tokens);
  experts_.reserve(n);
  weights_.reserve(info_.has_weights ? n : 0);
  const size_t ahead = tokens * info_.predicted_rows();
  predicted_.reserve(ahead * info_.shape().n_used);
  predicted_weights_.reserve(info_.has_predicted_weights ? ahead * info_.shape().n_used : 0);
  const size_t candidates = tokens * info_.shape().n_layer * info_.candidates();
  candidates_.reserve(candidates);
  scores_.reserve(candidates);
  raw_.reserve(candidates);
  ranges_.reserve(info_.has_candidates ? tokens * info_.shape().n_layer : 0);
  if (info_.little == 0) return;
  little_experts_.reserve(n);
  little_weights_.reserve(info_.has_weights ? tokens * info_.shape().n_layer * info_.little : 0);
  little_predicted_.reserve(ahead * info_.little);
  little_predicted_weights_.reserve(info_.has_predicted_weights ? ahead * info_.little : 0);
  confidences_.reserve(tokens);
}

TraceToken Trace::token(size_t t) const {
  const size_t n = size_t{info_.shape().n_layer} * info_.shape().n_used;
  const size_t n_predicted = info_.predicted_rows() * info_.shape().n_used;
  TraceToken token{.phase = phase(t),
                   .starts_sequence = starts_sequence(t),
                   .joins_step = joins_step(t),
                   .is_source = is_source(t),
                   .experts = std::span(experts_).subspan(t * n, n),
                   .predicted = std::span(predicted_).subspan(t * n_predicted, n_predicted)};
  if (info_.has_weights) token.weights = std::span(weights_).subspan(t * n, n);
  if (info_.has_predicted_weights) {
    token.predicted_weights = std::span(predicted_weights_).subspan(t * n_predicted, n_predicted);
  }
  if (info_.has_candidates) {
    const size_t layers = info_.shape().n_layer;
    const size_t all = layers * info_.candidates();
    token.candidates = {.experts = std::span(candidates_).subspan(t * all, all),
                        .scores = std::span(scores_).subspan(t * all, all),
                        .raw = std::span(raw_).subspan(t * all, all),
                        .ranges = std::span(ranges_).subspan(t * layers, layers)};
  }
  if (info_.little == 0) return token;
  const size_t n_weights = size_t{info_.shape().n_layer} * info_.little;
  const size_t n_ahead = info_.predicted_rows() * info_.little;
  token.little = {.experts = std::span(little_experts_).subspan(t * n, n),
                  .predicted = std::span(little_predicted_).subspan(t * n_ahead, n_ahead),
                  .confidence = confidences_[t]};
  if (info_.has_predicted_weights) {
    token.little.predicted_weights =
        std::span(little_predicted_weights_).subspan(t * n_ahead, n_ahead);
  }
  if (info_.has_weights) {
    token.little.weights = std::span(little_weights_).subspan(t * n_weights, n_weights);
  }
  return token;
}

namespace {

// Longest line in bytes: enough for 1000 layers with 200 experts each.
constexpr size_t kLongestLine = size_t{1} << 20U;

struct Row {
  size_t line = 0;
  size_t layers = 0;
  size_t used = 0;
  std::vector<ExpertId> experts = {};
};

Result<ExpertId> ParseId(std::optional<JsonView> value) {
  const std::optional<double> number = value ? value->number() : std::nullopt;
  if (!number || *number < 0 || *number > UINT16_MAX || *number != std::floor(*number)) {
    return Fail(Errc::kInvalidFile, "an expert is not a number from 0 to {}", UINT16_MAX);
  }
  return ExpertId{static_cast<uint16_t>(*number)};
}

Result<Row> ParseRow(const std::string& text) {
  TRY(const Json object, Json::Parse(text));
  const std::optional<JsonView> layers = object.Find("layers");
  if (!layers || layers->size() == 0) return Fail(Errc::kInvalidFile, "no list \"layers\"");
  Row row{.layers = layers->size()};
  for (size_t l = 0; l < row.layers; ++l) {
    const std::optional<JsonView> ids = layers->At(l);
    const size_t n = ids ? ids->size() : 0;
    if (n == 0 || (row.used != 0 && n != row.used)) {
      return Fail(Errc::kInvalidFile, "layer {} has {} experts, the ones before have {}", l, n,
                  row.used);
    }
    row.used = n;
    for (size_t k = 0; k < n; ++k) {
      TRY(const ExpertId id, ParseId(ids->At(k)));
      row.experts.push_back(id);
    }
  }
  return row;
}

// Reads a line up to kLongestLine bytes and one more, by which the caller recognises a longer line.
// false: the file has ended.
bool ReadLine(std::istream& file, std::string& line) {
  line.clear();
  char c = 0;
  while (line.size() <= kLongestLine && file.get(c) && c != '\n') line += c;
  return file || !line.empty();
}

Result<std::vector<Row>> ReadRows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  std::vector<Row> rows;
  std::string text;
  for (size_t line = 1; ReadLine(file, text); ++line) {
    if (text.size() > kLongestLine) {
      return Fail(Errc::kInvalidFile,
                  "{}, line {}: more than {} bytes; a line is the routing of "
                  "one token",
                  path, line, kLongestLine);
    }
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    Result<Row> row = ParseRow(text);
    if (!row) {
      return Fail(Errc::kInvalidFile, "{}, line {}: {}", path, line, row.error().message);
    }
    row->line = line;
    if (!rows.empty() && (row->layers != rows[0].layers || row->used != rows[0].used)) {
      return Fail(Errc::kInvalidFile, "{}, line {}: {} layers of {} experts, line {} has {} of {}",
                  path, line, row->layers, row->used, rows[0].line, rows[0].layers, rows[0].used);
    }
    rows.push_back(*std::move(row));
  }
  if (file.bad()) return Fail(Errc::kIo, "cannot read {}: {}", path, std::strerror(errno));
  if (rows.empty()) return Fail(Errc::kInvalidFile, "{} holds no line with routing", path);
  return rows;
}

}  // namespace

Result<Trace> ImportJsonl(const std::string& path, std::optional<uint32_t> experts) {
  TRY(const std::vector<Row> rows, ReadRows(path));
  uint32_t highest = 0;
  for (const Row& row : rows) {
    for (const ExpertId expert : row.experts) highest = std::max<uint32_t>(highest, expert.value);
  }
  const TraceInfo info{.model = {.name = std::filesystem::path(path).stem().string(),
                                 .shape = {.n_layer = static_cast<uint32_t>(rows[0].layers),
                                           .n_expert = experts.value_or(highest + 1),
                                           .n_used = static_cast<uint32_t>(rows[0].used)}},
                       .expert_bytes = 0,
                       .has_weights = false,
                       .experts_guessed = !experts.has_value()};
  Result<Trace> trace = Trace::Create(info);
  if (!trace) return Fail(Errc::kInvalidFile, "{}: {}", path, trace.error().message);
  for (const Row& row : rows) {
    const Status added = trace->Add(
        {.phase = Phase::kDecode, .starts_sequence = trace->tokens() == 0, .experts = row.experts});
    if (!added) {
      return Fail(Errc::kInvalidFile, "{}, line {}: {}", path, row.line, added.error().message);
    }
  }
  return trace;
}

}  // namespace moestro
