// SPDX-License-Identifier: MIT
#include "offline/record/profile.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "core/id_bytes.h"
#include "core/layer_plan.h"
#include "learned/learned_tables.h"

namespace moestro {

OutputNorms::OutputNorms(const MoeShape& shape, uint32_t n_embd, bool keeps_windows)
    : shape_(shape),
      n_embd_(n_embd),
      keeps_windows_(keeps_windows),
      sums_(shape.experts()),
      window_(shape.experts()),
      counts_(shape.experts()) {}

void OutputNorms::Add(const SeenExperts& seen) {
  for (const PlannedExpert& expert : seen.plan.experts) {
    CHECK(size_t{expert.first_pair + expert.n_pairs} * n_embd_ <= seen.results.size());
    const size_t at = size_t{seen.plan.layer.value} * shape_.n_expert + expert.key.expert.value;
    for (size_t pair = expert.first_pair; pair < expert.first_pair + expert.n_pairs; ++pair) {
      double squares = 0.0;
      for (const float x : seen.results.subspan(pair * n_embd_, n_embd_)) {
        squares += static_cast<double>(x) * static_cast<double>(x);
      }
      const float scale = seen.scale.empty() ? 1.0F : seen.scale[expert.key.expert.value];
      window_[at] += std::sqrt(squares) * std::abs(static_cast<double>(scale));
    }
    counts_[at] += expert.n_pairs;
  }
}

void OutputNorms::EndWindow() {
  AddWindow(window_);
  if (keeps_windows_) windows_.push_back(window_);
  std::ranges::fill(window_, 0.0);
}

void OutputNorms::AddWindow(std::span<const double> sums) {
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += sums[i];
}

void OutputNorms::AddCounts(std::span<const uint64_t> counts) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += counts[i];
}

ExpertNorms OutputNorms::Mean() const {
  ExpertNorms norms{.shape = shape_, .values = std::vector<float>(sums_.size(), 1.0F)};
  for (size_t begin = 0; begin < sums_.size(); begin += shape_.n_expert) {
    double sum = 0.0;
    uint32_t visited = 0;
    for (size_t i = begin; i < begin + shape_.n_expert; ++i) {
      if (counts_[i] == 0) continue;
      const double mean = (sums_[i] + window_[i]) / static_cast<double>(counts_[i]);
      norms.values[i] = static_cast<float>(mean);
      sum += mean;
      ++visited;
    }
    for (size_t i = begin; i < begin + shape_.n_expert && visited > 0; ++i) {
      if (counts_[i] == 0) norms.values[i] = static_cast<float>(sum / visited);
    }
  }
  return norms;
}

namespace {

constexpr uint64_t kNumbersBytes = 4 * 4 + 8 + 4;  // of the payload, before the ids

struct ProfileNumbers {
  MoeShape shape = {};
  uint64_t tokens = 0;
  bool has_norms = false;

  uint64_t token_bytes() const {
    return 1 + uint64_t{shape.n_layer} * shape.n_used * IdBytes(shape.n_expert);
  }
  uint64_t norms_bytes(uint64_t windows) const {
    return has_norms ? shape.experts() * (sizeof(uint64_t) + windows * sizeof(double)) : 0;
  }
};

// Checks sizes against the payload's, so that a forged size never takes more memory than the
// file has bytes.
Result<ProfileNumbers> TakeProfileNumbers(ShardPayload& payload, uint64_t windows) {
  TRY(const std::string bytes, payload.Take(std::min(kNumbersBytes, payload.left())));
  if (bytes.size() < kNumbersBytes) return payload.Damaged("its payload ends too early");
  Decoder decoder(bytes);
  ProfileNumbers numbers;
  numbers.shape.n_layer = decoder.Take<uint32_t>();
  numbers.shape.n_expert = decoder.Take<uint32_t>();
  numbers.shape.n_used = decoder.Take<uint32_t>();
  numbers.shape.n_encoder = decoder.Take<uint32_t>();
  numbers.tokens = decoder.Take<uint64_t>();
  const auto norms = decoder.Take<uint32_t>();
  numbers.has_norms = norms == 1;
  const bool is_good = PathTable::CheckShape(numbers.shape).has_value() && norms <= 1 &&
                       numbers.shape.n_encoder < numbers.shape.n_layer &&
                       numbers.tokens >= windows &&
                       numbers.tokens <= payload.left() / numbers.token_bytes() &&
                       (norms == 0 || windows <= payload.left() / numbers.shape.experts());
  if (is_good &&
      payload.left() == numbers.tokens * numbers.token_bytes() + numbers.norms_bytes(windows)) {
    return numbers;
  }
  return payload.Damaged("its numbers of layers, experts and tokens do not fill it");
}

// Whether `experts` fulfils the requirements of PathCounter::Add().
bool IsRouting(std::span<const ExpertId> experts, const MoeShape& shape, uint8_t source) {
  if (source > (shape.n_encoder > 0 ? 1 : 0)) return false;
  std::vector<bool> seen(shape.n_expert);
  const ExpertLayers layers = shape.layers_of(source == 1);
  for (size_t l = layers.begin; l < layers.end; ++l) {
    const auto layer = experts.subspan(l * shape.n_used, shape.n_used);
    for (const ExpertId e : layer) {
      if (e.value >= shape.n_expert || seen[e.value]) return false;
      seen[e.value] = true;
    }
    for (const ExpertId e : layer) seen[e.value] = false;
  }
  return true;
}

Status TakeRouting(ShardPayload& payload, const ProfileNumbers& numbers, PathCounter& experts) {
  const size_t id_bytes = IdBytes(numbers.shape.n_expert);
  std::vector<ExpertId> ids(size_t{numbers.shape.n_layer} * numbers.shape.n_used);
  const uint64_t at_once = std::max<uint64_t>(1, kFileWindow / numbers.token_bytes());
  for (uint64_t t = 0; t < numbers.tokens;) {
    const uint64_t now = std::min(at_once, numbers.tokens - t);
    TRY(const std::string bytes, payload.Take(now * numbers.token_bytes()));
    Decoder decoder(bytes);
    for (const uint64_t end = t + now; t < end; ++t) {
      const auto source = decoder.Take<uint8_t>();
      TakeIds(decoder, ids, id_bytes);
      if (!IsRouting(ids, numbers.shape, source)) {
        return payload.Damaged(Format("token {} was routed to what are no experts", t));
      }
      experts.Add(ids, source == 1);
    }
  }
  return {};
}

Status TakeNorms(ShardPayload& payload, const ProfileNumbers& numbers, uint64_t windows,
                 OutputNorms& norms) {
  std::vector<uint64_t> counts(numbers.shape.experts());
  TRY_STATUS(payload.TakeNumbers(std::span(counts)));
  if (std::ranges::any_of(counts, [&](uint64_t n) { return n > numbers.tokens; })) {
    return payload.Damaged("an expert had more rows than there are tokens");
  }
  norms.AddCounts(counts);
  std::vector<double> sums(numbers.shape.experts());
  for (uint64_t window = 0; window < windows; ++window) {
    TRY_STATUS(payload.TakeNumbers(std::span(sums)));
    const auto bad =
        std::ranges::find_if(sums, [](double s) { return !(s >= 0.0 && std::isfinite(s)); });
    if (bad != sums.end()) return payload.Damaged(Format("{} is no sum of lengths", *bad));
    norms.AddWindow(sums);
  }
  return {};
}

}  // namespace

Status CheckFiles(const ProfileFiles& where) {
  TRY_STATUS(where.paths.Check());
  TRY_STATUS(where.norms.Check());
  OutputPath norms(where.norms.text());
  norms.Spare(where.paths.text());
  if (norms.Check()) return {};
  return Fail(Errc::kUsage, "{} cannot be the paths and the norms; give two names",
              where.paths.text());
}

Result<Profile> LearnProfile(const RecordedRouting& routing, const ModelId& model,
                             const ProfileFiles& where) {
  const PathCounter& experts = routing.experts;
  const size_t tokens = experts.tokens();
  if (tokens == 0) {
    return Fail(Errc::kInvalidRequest, "no token to learn from; give a longer text or trace");
  }
  const size_t held_out = tokens / 5;
  PathRecall recall;
  if (held_out > 0) {
    const size_t begin = tokens - held_out;
    recall = MeasurePaths(experts.Learn(begin), experts, {begin, tokens});
  }
  Profile profile{
      .paths = {.model = model, .tokens = tokens, .table = experts.Learn()},
      .written = {.paths = where.paths, .norms = routing.norms ? where.norms : OutputPath()},
      .held_out = held_out,
      .recall = recall};
  TRY(profile.file_bytes, WritePaths(profile.written.paths, profile.paths));
  if (!profile.written.norms.empty()) {
    TRY_STATUS(WriteNorms(
        profile.written.norms,
        {.model = profile.paths.model, .tokens = tokens, .norms = routing.norms->Mean()}));
  }
  return profile;
}

Status WriteProfileShard(const OutputPath& path, const ShardInfo& shard,
                         const RecordedRouting& routing) {
  const ProfileNumbers numbers{.shape = routing.experts.shape(),
                               .tokens = routing.experts.tokens(),
                               .has_norms = routing.norms.has_value()};
  TRY(BinaryWriter file, BeginShard(path, shard,
                                    kNumbersBytes + numbers.tokens * numbers.token_bytes() +
                                        numbers.norms_bytes(shard.range().size())));
  std::string bytes;
  AppendNumber(bytes, numbers.shape.n_layer);
  AppendNumber(bytes, numbers.shape.n_expert);
  AppendNumber(bytes, numbers.shape.n_used);
  AppendNumber(bytes, numbers.shape.n_encoder);
  AppendNumber(bytes, numbers.tokens);
  AppendNumber(bytes, uint32_t{numbers.has_norms ? 1U : 0U});
  for (size_t t = 0; t < numbers.tokens; ++t) {
    AppendNumber(bytes, uint8_t{routing.experts.is_source(t) ? uint8_t{1} : uint8_t{0}});
    for (size_t l = 0; l < numbers.shape.n_layer; ++l) {
      AppendIds(bytes, routing.experts.of(t, l), IdBytes(numbers.shape.n_expert));
    }
    if (bytes.size() < kFileWindow) continue;
    TRY_STATUS(file.Add(bytes));
    bytes.clear();
  }
  TRY_STATUS(file.Add(bytes));
  if (routing.norms) {
    bytes.clear();
    for (const uint64_t count : routing.norms->counts()) AppendNumber(bytes, count);
    TRY_STATUS(file.Add(bytes));
    for (const std::vector<double>& window : routing.norms->windows()) {
      bytes.clear();
      for (const double sum : window) AppendNumber(bytes, sum);
      TRY_STATUS(file.Add(bytes));
    }
  }
  return file.Finish();
}

Result<RecordedRouting> MergeProfile(std::span<const FoundShard> shards) {
  std::optional<RecordedRouting> all;
  for (const FoundShard& shard : shards) {
    const uint64_t windows = shard.info.range().size();
    if (windows == 0) continue;
    TRY(ShardPayload payload, ShardPayload::Open(shard));
    TRY(const ProfileNumbers numbers, TakeProfileNumbers(payload, windows));
    if (!all) {
      all = {.model = {.name = shard.info.model,
                       .fingerprint = shard.info.fingerprint,
                       .shape = numbers.shape},
             .experts = PathCounter(numbers.shape)};
      if (numbers.has_norms) all->norms.emplace(numbers.shape, 0);
    }
    if (all->model.shape != numbers.shape || all->norms.has_value() != numbers.has_norms) {
      return payload.Damaged("its layers and experts are not those of the shards before it");
    }
    TRY_STATUS(TakeRouting(payload, numbers, all->experts));
    if (all->norms) TRY_STATUS(TakeNorms(payload, numbers, windows, *all->norms));
    TRY_STATUS(payload.CheckEnd());
  }
  return *std::move(all);
}

}  // namespace moestro
