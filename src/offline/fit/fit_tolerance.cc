// SPDX-License-Identifier: MIT
#include "offline/fit/fit_tolerance.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/number.h"

namespace moestro {

std::string FitTolerance::Text(double loss) const {
  return kind == Kind::kKl ? Format("KL={:.4g}", loss) : Format("ppl={:.4g}%", loss * 100.0);
}

Result<FitTolerance> ParseTolerance(std::string_view text) {
  const bool is_kl = text.starts_with("KL=");
  const bool is_ppl = text.starts_with("ppl=") && text.ends_with('%');
  std::string_view number = text.substr(is_kl ? 3 : std::min<size_t>(4, text.size()));
  if (is_ppl) number.remove_suffix(1);
  const double value = ParseNumber<double>(number).value_or(0.0);
  if ((!is_kl && !is_ppl) || !(value > 0.0)) {
    return Fail(Errc::kUsage, "'{}' is no tolerance; give KL=0.01 or ppl=1%", text);
  }
  return FitTolerance{.kind = is_kl ? FitTolerance::Kind::kKl : FitTolerance::Kind::kPerplexity,
                      .most = is_kl ? value : value / 100.0};
}

}  // namespace moestro
