// SPDX-License-Identifier: MIT
#include "offline/fit/fit_tolerance.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "base/format.h"

namespace moestro {

std::string FitTolerance::Text(double loss) const {
  return kind == Kind::kKl ? Format("KL={:.4g}", loss) : Format("ppl={:.4g}%", loss * 100.0);
}

Result<FitTolerance> ParseTolerance(std::string_view text) {
  const bool is_kl = text.starts_with("KL=");
  const bool is_ppl = text.starts_with("ppl=") && text.ends_with('%');
  std::string_view number = text.substr(is_kl ? 3 : std::min<size_t>(4, text.size()));
  if (is_ppl) number.remove_suffix(1);
  double value = 0.0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), value);
  if ((!is_kl && !is_ppl) || error != std::errc() || end != number.end() || !(value > 0.0) ||
      !std::isfinite(value)) {
    return Fail(Errc::kUsage, "'{}' is no tolerance; give KL=0.01 or ppl=1%", text);
  }
  return FitTolerance{.kind = is_kl ? FitTolerance::Kind::kKl : FitTolerance::Kind::kPerplexity,
                      .most = is_kl ? value : value / 100.0};
}

}  // namespace moestro
