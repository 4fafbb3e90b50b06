// SPDX-License-Identifier: MIT
// A point of a sweep, for tests.
#pragma once

#include <string>

#include "offline/eval/eval.h"

namespace moestro {

// Of 100 tokens; the error of the mean KL is a tenth of it.
inline EvalPoint SweepPoint(const std::string& cache, double kl, double tps) {
  EvalPoint point{
      .settings = {{.knob = "cache", .value = cache}}, .figures = {}, .decode_tps = tps};
  point.figures.tokens = 100;
  point.figures.against.emplace();
  point.figures.against->kl_mean = {.value = kl, .error = kl / 10.0};
  return point;
}

}  // namespace moestro
