// SPDX-License-Identifier: MIT
#include "decide/slots/first_experts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <unordered_set>

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

std::vector<uint64_t> PopularityOf(const PathTable& paths) {
  const MoeShape& shape = paths.shape();
  constexpr uint64_t kAlways = std::numeric_limits<PathShare>::max();
  std::vector<uint64_t> counts(shape.experts(), kAlways * shape.n_used / shape.n_expert);
  for (size_t l = 0; l < paths.layers().size(); ++l) {
    const std::vector<PathShare>& popularity = paths.layers()[l].popularity;
    std::ranges::copy(popularity, counts.begin() + static_cast<ptrdiff_t>(l * shape.n_expert));
  }
  return counts;
}

std::vector<ExpertKey> ByPopularity(const PathTable& paths) {
  return MostFirst(paths.shape(), PopularityOf(paths));
}

namespace {

// All experts by popularity, those that memory keeps at the end; without popularity round by round,
// one of each layer in a round.
std::vector<ExpertKey> ByWish(std::span<const uint32_t> n_experts, std::span<const ExpertKey> first,
                              uint64_t kept) {
  std::vector<ExpertKey> wished;
  std::unordered_set<ExpertKey> known;
  const auto wish = [&](ExpertKey key) {
    if (known.insert(key).second) wished.push_back(key);
  };
  const size_t hot = std::min<size_t>(kept, first.size());
  for (const ExpertKey key : first.subspan(hot)) wish(key);
  known.insert(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(hot));
  const uint32_t most = n_experts.empty() ? 0 : std::ranges::max(n_experts);
  for (uint32_t e = 0; e < most; ++e) {
    for (size_t l = 0; l < n_experts.size(); ++l) {
      if (e >= n_experts[l]) continue;
      wish({ExpertLayerId{static_cast<uint16_t>(l)}, ExpertId{static_cast<uint16_t>(e)}});
    }
  }
  // The kept experts come last, the coldest of them first.
  for (size_t i = hot; i > 0; --i) wished.push_back(first[i - 1]);
  return wished;
}

}  // namespace

std::vector<std::vector<ExpertKey>> SharesOf(std::span<const uint32_t> n_experts,
                                             std::span<const ExpertKey> first, uint64_t kept,
                                             std::span<const uint64_t> room) {
  const size_t layers = n_experts.size();
  std::vector<std::vector<ExpertKey>> shares(room.size());
  std::vector<size_t> next(layers);  // [layer]: the device whose turn it is
  std::vector<size_t> rank(layers, layers);
  size_t ranks = 0;
  for (const ExpertKey key : ByWish(n_experts, first, kept)) {
    const size_t layer = key.layer.value;
    size_t tried = 0;
    while (tried < room.size() && shares[next[layer]].size() >= room[next[layer]]) {
      next[layer] = (next[layer] + 1) % room.size();
      ++tried;
    }
    if (tried == room.size()) break;
    if (rank[layer] == layers) rank[layer] = ranks++;
    shares[next[layer]].push_back(key);
    next[layer] = (next[layer] + 1) % room.size();
  }
  for (std::vector<ExpertKey>& share : shares) {
    std::ranges::stable_sort(share, {}, [&](ExpertKey key) { return rank[key.layer.value]; });
  }
  return shares;
}

}  // namespace moestro
