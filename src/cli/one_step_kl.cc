// SPDX-License-Identifier: MIT
#include "cli/one_step_kl.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "offline/eval/eval_stats.h"

namespace moestro {

void OneStepKl::Add(std::span<const float> exact, std::span<const float> actual) {
  exact_.resize(exact.size());
  actual_.resize(actual.size());
  LogSoftmax(exact, exact_);
  LogSoftmax(actual, actual_);
  const double kl = Divergence(exact_, actual_);
  ++tokens_;
  sum_ += kl;
  squares_ += kl * kl;
}

double OneStepKl::mean() const { return tokens_ > 0 ? sum_ / static_cast<double>(tokens_) : 0.0; }

std::optional<double> OneStepKl::error() const {
  if (tokens_ < 2) return std::nullopt;
  const auto n = static_cast<double>(tokens_);
  const double variance = std::max(squares_ - n * mean() * mean(), 0.0) / (n - 1.0);
  return std::sqrt(variance / n);
}

std::string OneStepKl::Text(double wish, bool is_exact) const {
  if (is_exact) return "quality  exact, nothing to check\n";
  if (tokens_ == 0) {
    return Format("quality  not checked: each {}th token is, and there were fewer\n", kCheckEvery);
  }
  const auto se = error();
  return Format(
      "quality  one-step KL {:.2g}{}: each {}th token, {} in all, also evaluated exactly on the "
      "same "
      "history; a mean KL of {} was wished\n",
      mean(), se ? Format(" ± {:.1g}", *se) : "", kCheckEvery, tokens_, wish);
}

void OneStepKl::AddTo(Json& object, double wish) const {
  object.Set("wished_kl", wish)
      .Set("one_step_kl", tokens_ > 0 ? Json(mean()) : Json())
      .Set("one_step_kl_se", error() ? Json(*error()) : Json())
      .Set("one_step_kl_tokens", tokens_);
}

}  // namespace moestro
