// SPDX-License-Identifier: MIT
// Big and little: decode rows with fewer experts first, and with all of them where the model is not
// sure. A second pass overwrites the first one's keys and values; what the first pass's routers
// said is read ahead for it. Source: MoBiLE.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "native/native_impl.h"

namespace moestro {

Status NativeEngine::Impl::PrepareLittle() {
  if (!options.little.is_on()) return {};
  TRY(const uint32_t used,
      CheckLittle(options.little, model.spec.router.n_used, catalog.has_low()));
  // The first pass would keep nothing.
  if (!options.little.fallback_share && options.little.gamma >= 1.0) return {};
  little = {.n_used = used, .misses = options.little.misses};
  judge.emplace(options.little);
  return {};
}

Status NativeEngine::Impl::CheckLittleStep(const Batch& batch) const {
  const bool has_prompt = std::ranges::contains(batch.rows, RowKind::kPrompt, &BatchRow::kind);
  if (has_prompt && !batch.foreseen.empty()) {
    return Fail(Errc::kInvalidRequest, "rows of a prompt are not foreseen");
  }
  TRY_STATUS(CheckForeseen(batch));
  if (!batch.little.is_on()) return {};
  if (batch.little.n_used >= model.spec.router.n_used) {
    return Fail(Errc::kInvalidRequest, "a little step uses fewer than {} experts, not {}",
                model.spec.router.n_used, batch.little.n_used);
  }
  if (batch.little.misses == Misses::kLow && !catalog.has_low()) {
    return Fail(Errc::kInvalidRequest, "there are no low copies for a little step's misses");
  }
  if (has_prompt) return Fail(Errc::kInvalidRequest, "rows of a prompt use all experts");
  return {};
}

Status NativeEngine::Impl::CheckForeseen(const Batch& batch) const {
  if (batch.foreseen.empty()) return {};
  const MoeShape& shape = model.id.shape;
  const size_t n = batch.foreseen.front().size();
  bool is_whole = batch.foreseen.size() == shape.n_layer && n > 0 && n % shape.n_used == 0 &&
                  n / shape.n_used <= batch.size();
  for (const std::vector<ExpertId>& of_layer : batch.foreseen) {
    is_whole = is_whole && of_layer.size() == n &&
               std::ranges::all_of(of_layer, [&](ExpertId e) { return e.value < shape.n_expert; });
  }
  if (is_whole) return {};
  return Fail(Errc::kInvalidRequest,
              "what is foreseen has not the shape of the model and the rows");
}

// A row whose sequence has an earlier one in the step would see keys and values that may go.
bool NativeEngine::Impl::is_for_little(const Batch& batch) const {
  if (!little.is_on() || batch.little.is_on()) return false;
  std::vector<SequenceId> seen;
  for (const BatchRow& row : batch.rows) {
    if (row.kind != RowKind::kDecode || !row.wants_logits) return false;
    seen.push_back(row.sequence);
  }
  std::ranges::sort(seen);
  return std::ranges::adjacent_find(seen) == seen.end();
}

Status NativeEngine::Impl::ComputeLittleFirst(const Batch& batch, const LogitsSink& sink) {
  for (size_t first = 0; first < batch.size(); first += chunk) {
    const size_t n = std::min<size_t>(chunk, batch.size() - first);
    const auto begin = batch.rows.begin() + static_cast<std::ptrdiff_t>(first);
    const Batch part{.rows = {begin, begin + static_cast<std::ptrdiff_t>(n)}, .little = little};
    std::vector<size_t> again;  // rows of the part
    const double start = options.clock();
    TRY_STATUS(Compute(part, [&](size_t row, std::span<const float> logits) {
      if (!judge->Keeps(Confidence(logits))) {
        again.push_back(row);
      } else if (sink) {
        sink(first + row, logits);
      }
    }));
    stats.little.little_seconds += options.clock() - start;
    stats.little.tokens += n;
    ++stats.little.steps;
    if (again.empty()) continue;
    TRY_STATUS(ComputeAgain(part, again, [&](size_t row, std::span<const float> logits) {
      if (sink) sink(first + row, logits);
    }));
  }
  return {};
}

Status NativeEngine::Impl::ComputeAgain(const Batch& batch, std::span<const size_t> rows,
                                        const LogitsSink& sink) {
  Batch big;
  for (const size_t row : rows) big.rows.push_back(batch.rows[row]);
  const size_t k = model.spec.router.n_used;
  for (const std::vector<ExpertId>& of_layer : forward->widened()) {
    std::vector<ExpertId>& in_layer = big.foreseen.emplace_back();
    for (const size_t row : rows) {
      in_layer.append_range(std::span(of_layer).subspan(row * k, k));
    }
  }
  const ResidencyStats before = residency->stats();
  const PredictionScore score = planner->foreseen_score();
  const double start = options.clock();
  TRY_STATUS(Compute(big, [&](size_t i, std::span<const float> logits) { sink(rows[i], logits); }));
  const ResidencyStats did = residency->stats().Since(before);
  LittleStats& counts = stats.little;
  counts.again_seconds += options.clock() - start;
  counts.again += rows.size();
  ++counts.steps_again;
  counts.foreseen = counts.foreseen + (planner->foreseen_score() - score);
  counts.prefetches += did.prefetches;
  counts.used_prefetches += did.used_prefetches;
  return {};
}

}  // namespace moestro
