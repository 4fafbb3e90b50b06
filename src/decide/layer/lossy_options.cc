// SPDX-License-Identifier: MIT
#include "decide/layer/lossy_options.h"

#include <string_view>

#include "decide/layer/importance/importance.h"

namespace moestro {
namespace {

Status CheckShare(std::string_view flag, double value) {
  if (value >= 0.0 && value <= 1.0) return {};
  return Fail(Errc::kUsage, "{} is {}; it goes from 0 to 1", flag, value);
}

}  // namespace

Status CheckLossy(const LossyOptions& options, bool has_low) {
  const double t1 = options.t1_of(has_low);
  const double t2 = options.t2_of(has_low);
  TRY_STATUS(CheckShare("--t1", t1));
  TRY_STATUS(CheckShare("--t2", t2));
  TRY_STATUS(CheckShare("--drop-below", options.drop_below));
  TRY_STATUS(CheckShare("--prefer-resident", options.prefer_resident));
  if (!has_low && (options.t1 || options.t2)) {
    return Fail(Errc::kUsage,
                "--t1 and --t2 choose between copies; name the low ones with --low FILE, which "
                "'moestro quantize' makes");
  }
  if (t1 > t2) {
    return Fail(Errc::kUsage, "--t1 {} is above --t2 {}: nothing would be read in low precision",
                t1, t2);
  }
  return CheckImportanceName(options.importance);
}

}  // namespace moestro
