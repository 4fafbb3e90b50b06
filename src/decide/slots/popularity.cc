// SPDX-License-Identifier: MIT
#include "decide/slots/popularity.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>

namespace moestro {

std::vector<ExpertKey> AllExperts(const MoeShape& shape) {
  std::vector<ExpertKey> keys;
  keys.reserve(shape.experts());
  for (uint16_t l = 0; l < shape.n_layer; ++l) {
    for (uint16_t e = 0; e < shape.n_expert; ++e) {
      keys.push_back({.layer = ExpertLayerId{l}, .expert = {e}});
    }
  }
  return keys;
}

std::vector<ExpertKey> MostFirst(const MoeShape& shape, std::span<const uint64_t> counts) {
  std::vector<ExpertKey> keys = AllExperts(shape);
  std::ranges::stable_sort(keys, std::greater(), [&](ExpertKey key) {
    return counts[size_t{key.layer.value} * shape.n_expert + key.expert.value];
  });
  return keys;
}

std::vector<ExpertKey> ByPopularity(const PathTable& paths) {
  const MoeShape& shape = paths.shape();
  constexpr uint64_t kAlways = std::numeric_limits<PathShare>::max();
  std::vector<uint64_t> counts(shape.experts(), kAlways * shape.n_used / shape.n_expert);
  for (size_t l = 0; l < paths.layers().size(); ++l) {
    const std::vector<PathShare>& popularity = paths.layers()[l].popularity;
    std::ranges::copy(popularity, counts.begin() + static_cast<ptrdiff_t>(l * shape.n_expert));
  }
  return MostFirst(shape, counts);
}

}  // namespace moestro
