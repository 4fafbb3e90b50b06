// SPDX-License-Identifier: MIT
#include "text/step_planner.h"

#include <algorithm>
#include <cstddef>

namespace moestro {
namespace {

// The weight of older steps against the next one in the expected cost.
constexpr double kFading = 0.9;
constexpr uint32_t kFewestRows = 16;
// Rows of the first step, before any cost is known.
constexpr uint32_t kFirstRows = 64;

struct RowCost {
  double fixed = 0.0;  // seconds
  double each = 0.0;   // seconds for a row
};

}  // namespace

uint32_t StepPlanner::rows_beside_texts() const {
  const uint32_t fewest = std::min(kFewestRows, limits_.chunk);
  if (weight_ <= 0.0) return std::clamp(kFirstRows, fewest, limits_.chunk);
  const double mean_rows = rows_ / weight_;
  const double mean_seconds = seconds_ / weight_;
  const double variance = rows_squared_ / weight_ - mean_rows * mean_rows;
  RowCost cost{.fixed = 0.0, .each = mean_seconds / mean_rows};
  // Steps of about the same size do not show the cost of one more row.
  if (variance > 0.01 * mean_rows * mean_rows) {
    const double slope = (rows_seconds_ / weight_ - mean_rows * mean_seconds) / variance;
    cost.each = std::clamp(slope, 0.0, cost.each);
    cost.fixed = mean_seconds - cost.each * mean_rows;
  }
  const double left = limits_.gap_seconds - cost.fixed;
  const double within_gap = left > 0.0 ? left / cost.each : 0.0;  // all rows if a row costs nothing
  // rows / (fixed + rows * each) = half of chunk / (fixed + chunk * each)
  const double half_of_best = cost.fixed / (2.0 * cost.fixed / limits_.chunk + cost.each);
  const double rows = std::max({within_gap, half_of_best, static_cast<double>(fewest)});
  return static_cast<uint32_t>(std::min(rows, static_cast<double>(limits_.chunk)));
}

std::vector<uint32_t> StepPlanner::Plan(std::span<const Text> texts) const {
  std::vector<uint32_t> rows(texts.size(), 0);
  std::vector<size_t> prompts;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].is_prompt) prompts.push_back(i);
  }
  const bool writes = prompts.size() < texts.size();
  if (prompts.empty() || (writes && texts_turn_ > 0.0)) {
    for (size_t i = 0; i < texts.size(); ++i) rows[i] = texts[i].is_prompt ? 0 : 1;
    return rows;
  }
  uint32_t left = writes ? rows_beside_texts() : limits_.chunk;
  const auto give = [&](size_t text, uint32_t most) {
    const uint32_t n = std::min({most, left, texts[text].waiting - rows[text]});
    rows[text] += n;
    left -= n;
  };
  const size_t oldest = prompts.front();
  give(oldest, prompts.size() > 1 ? (left + 1) / 2 : left);
  std::ranges::stable_sort(prompts, {}, [&](size_t i) { return texts[i].waiting; });
  for (const size_t i : prompts) {
    if (i != oldest) give(i, left);
  }
  give(oldest, left);
  return rows;
}

void StepPlanner::StepDone(uint32_t prompt_rows, double seconds, bool others_wait) {
  if (prompt_rows == 0) {
    text_seconds_ = seconds;
    TextsHad(seconds);
    return;
  }
  texts_turn_ = others_wait ? seconds : 0.0;
  const double rows = prompt_rows;
  weight_ = weight_ * kFading + 1.0;
  rows_ = rows_ * kFading + rows;
  seconds_ = seconds_ * kFading + seconds;
  rows_squared_ = rows_squared_ * kFading + rows * rows;
  rows_seconds_ = rows_seconds_ * kFading + rows * seconds;
}

void StepPlanner::TextsHad(double seconds) { texts_turn_ = std::max(texts_turn_ - seconds, 0.0); }

}  // namespace moestro
