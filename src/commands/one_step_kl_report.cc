// SPDX-License-Identifier: MIT
#include "commands/one_step_kl_report.h"

#include <optional>

#include "base/format.h"

namespace moestro {

std::string DescribeOneStepKl(const OneStepKl& kl, double wish, bool is_exact) {
  if (is_exact) return "quality  exact, nothing to check\n";
  if (kl.tokens() == 0) {
    return Format("quality  not checked: each {}th token is, and there were fewer\n", kCheckEvery);
  }
  const auto se = kl.error();
  return Format(
      "quality  one-step KL {:.2g}{}: each {}th token, {} in all, also evaluated exactly on the "
      "same history; a mean KL of {} was wished\n",
      kl.mean(), se ? Format(" ± {:.1g}", *se) : "", kCheckEvery, kl.tokens(), wish);
}

void AddOneStepKl(Json& object, const OneStepKl& kl, double wish) {
  object.Set("wished_kl", wish)
      .Set("one_step_kl", kl.tokens() > 0 ? Json(kl.mean()) : Json())
      .Set("one_step_kl_se", kl.error() ? Json(*kl.error()) : Json())
      .Set("one_step_kl_tokens", kl.tokens());
}

}  // namespace moestro
