// SPDX-License-Identifier: MIT
#include "decide/layer/lossy_options.h"

namespace moestro {
Status CheckLossy(const LossyOptions& options, bool has_low) {
  const double t1 = options.t1_of(has_low);
  const double t2 = options.t2_of(has_low);
  if (!has_low && (options.t1 || options.t2)) {
    return Fail(Errc::kUsage,
                "--t1 and --t2 choose between copies; name the low ones with --low FILE, which "
                "'moestro quantize' makes");
  }
  if (t1 > t2) {
    return Fail(Errc::kUsage, "--t1 {} is above --t2 {}: nothing would be read in low precision",
                t1, t2);
  }
  return {};
}

}  // namespace moestro
