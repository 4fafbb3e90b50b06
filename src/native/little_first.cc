// SPDX-License-Identifier: MIT
#include "native/little_first.h"

#include <algorithm>
#include <vector>

namespace moestro {

// Refuses rows whose sequence has an earlier row in the step: that row's keys and values may be
// overwritten by the second pass.
bool LittleFirst::Takes(const Batch& batch) const {
  if (batch.little.is_on()) return false;
  std::vector<SequenceId> seen;
  for (const BatchRow& row : batch.rows) {
    if (row.kind != RowKind::kDecode || !row.wants_logits) return false;
    seen.push_back(row.sequence);
  }
  std::ranges::sort(seen);
  return std::ranges::adjacent_find(seen) == seen.end();
}

Status LittleFirst::Compute(const Batch& batch, const StepRunner::LogitsSink& sink) {
  LittleStats& counts = frame_.state().stats.little;
  for (size_t first = 0; first < batch.size(); first += opened_.plan.chunk) {
    const size_t n = std::min<size_t>(opened_.plan.chunk, batch.size() - first);
    const auto begin = batch.rows.begin() + static_cast<std::ptrdiff_t>(first);
    const Batch part{.rows = {begin, begin + static_cast<std::ptrdiff_t>(n)},
                     .little = opened_.little};
    std::vector<size_t> again;  // rows of the part
    const double start = frame_.now();
    TRY_STATUS(runner_.Compute(part, [&](size_t row, std::span<const float> logits) {
      if (!judge_.Keeps(Confidence(logits))) {
        again.push_back(row);
      } else if (sink) {
        sink(first + row, logits);
      }
    }));
    counts.little_seconds += frame_.now() - start;
    counts.tokens += n;
    ++counts.steps;
    if (again.empty()) continue;
    TRY_STATUS(ComputeAgain(part, again, [&](size_t row, std::span<const float> logits) {
      if (sink) sink(first + row, logits);
    }));
  }
  return {};
}

Status LittleFirst::ComputeAgain(const Batch& batch, std::span<const size_t> rows,
                                 const StepRunner::LogitsSink& sink) {
  Batch big;
  for (const size_t row : rows) big.rows.push_back(batch.rows[row]);
  const size_t k = opened_.model.spec.router.n_used;
  for (const std::vector<ExpertId>& of_layer : forward_.widened()) {
    std::vector<ExpertId>& in_layer = big.foreseen.emplace_back();
    for (const size_t row : rows) {
      in_layer.append_range(std::span(of_layer).subspan(row * k, k));
    }
  }
  const PrefetchPlanner& planner = frame_.decisions().planner();
  const ExpertCounts before = frame_.residency().stats();
  const PredictionScore score = planner.foreseen_score();
  const double start = frame_.now();
  TRY_STATUS(runner_.Compute(
      big, [&](size_t i, std::span<const float> logits) { sink(rows[i], logits); }));
  const ExpertCounts did = frame_.residency().stats() - before;
  LittleStats& counts = frame_.state().stats.little;
  counts.again_seconds += frame_.now() - start;
  counts.again += rows.size();
  ++counts.steps_again;
  counts.foreseen += planner.foreseen_score() - score;
  counts.prefetches += did.prefetches;
  counts.used_prefetches += did.used_prefetches;
  return {};
}

}  // namespace moestro
