// SPDX-License-Identifier: MIT
#include "sim/lanes.h"

#include <algorithm>
#include <functional>

#include "decide/slots/popularity.h"

namespace moestro {

std::vector<ExpertKey> ByPopularity(const Trace& trace, size_t tokens) {
  const MoeShape& shape = trace.info().shape();
  std::vector<uint64_t> counts(shape.experts());
  for (size_t t = 0; t < std::min(tokens, trace.tokens()); ++t) {
    const ExpertLayers layers = trace.layers_of(t);
    for (size_t l = layers.begin; l < layers.end; ++l) {
      for (const ExpertId e : trace.experts(t, l)) ++counts[l * shape.n_expert + e.value];
    }
  }
  return MostFirst(shape, counts);
}

std::vector<ExpertKey> ByLayer(const MoeShape& shape) {
  std::vector<ExpertKey> keys = AllExperts(shape);
  std::ranges::stable_sort(keys, std::greater(), [](ExpertKey key) { return key.layer; });
  return keys;
}

}  // namespace moestro
