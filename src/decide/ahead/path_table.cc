// SPDX-License-Identifier: MIT
#include "decide/ahead/path_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/result.h"

namespace moestro {
namespace {

constexpr uint32_t kMaxCount = 4096;
constexpr float kShares = 65535.0F;

float Probability(PathShare share) { return static_cast<float>(share) / kShares; }

Status CheckFollowers(const MoeShape& shape, std::span<const PathFollower> row,
                      std::vector<bool>& listed) {
  if (row.empty() || row.size() > PathTable::kMaxFollowers) {
    return Fail(Errc::kInvalidFile, "a key with {} followers, not 1 to {}", row.size(),
                PathTable::kMaxFollowers);
  }
  std::ranges::fill(listed, false);
  for (size_t i = 0; i < row.size(); ++i) {
    const uint16_t expert = row[i].expert.value;
    if (expert >= shape.n_expert) {
      return Fail(Errc::kInvalidFile, "follower {} of {} experts", expert, shape.n_expert);
    }
    if (listed[expert]) return Fail(Errc::kInvalidFile, "follower {} twice", expert);
    listed[expert] = true;
    if (row[i].share == 0 || (i > 0 && row[i].share > row[i - 1].share)) {
      return Fail(Errc::kInvalidFile, "followers that are not ordered by probability");
    }
  }
  return {};
}

Status CheckLayer(const MoeShape& shape, const PathLayer& layer) {
  if (layer.popularity.size() != shape.n_expert || std::ranges::contains(layer.popularity, 0)) {
    return Fail(Errc::kInvalidFile, "popularities that are missing or 0");
  }
  if (layer.ends.size() != layer.keys.size() ||
      (layer.ends.empty() ? 0 : layer.ends.back()) != layer.followers.size()) {
    return Fail(Errc::kInvalidFile, "{} followers that do not belong to the keys",
                layer.followers.size());
  }
  std::vector<bool> listed(shape.n_expert);
  uint32_t begin = 0;
  for (size_t k = 0; k < layer.keys.size(); ++k) {
    const PathKey key = layer.keys[k];
    if (key.last.value >= shape.n_expert || key.earlier > shape.n_expert) {
      return Fail(Errc::kInvalidFile, "a key of expert {} after {}, of {} experts", key.last.value,
                  key.earlier, shape.n_expert);
    }
    if (k > 0 && !(layer.keys[k - 1] < key)) return Fail(Errc::kInvalidFile, "unordered keys");
    if (layer.ends[k] < begin || layer.ends[k] > layer.followers.size()) {
      return Fail(Errc::kInvalidFile, "key {} ends at follower {}", k, layer.ends[k]);
    }
    const auto row = std::span(layer.followers).subspan(begin, layer.ends[k] - begin);
    TRY_STATUS(CheckFollowers(shape, row, listed));
    begin = layer.ends[k];
  }
  return {};
}

}  // namespace

Status PathTable::CheckShape(const MoeShape& shape) {
  if (shape.n_layer >= 1 && shape.n_layer <= kMaxCount && shape.n_expert >= 1 &&
      shape.n_expert <= kMaxCount && shape.n_used >= 1 && shape.n_used <= shape.n_expert) {
    return {};
  }
  return Fail(Errc::kInvalidFile, "{} of {} experts in {} layers; each is 1 to {}", shape.n_used,
              shape.n_expert, shape.n_layer, kMaxCount);
}

Result<PathTable> PathTable::Create(MoeShape shape, std::vector<PathLayer> layers) {
  TRY_STATUS(CheckShape(shape));
  if (layers.size() != shape.n_layer) {
    return Fail(Errc::kInvalidFile, "paths of {} layers, not {}", layers.size(), shape.n_layer);
  }
  if (layers[0] != PathLayer{}) return Fail(Errc::kInvalidFile, "paths before the first layer");
  for (size_t l = 1; l < layers.size(); ++l) {
    const Status fits = CheckLayer(shape, layers[l]);
    if (!fits) return Fail(fits.error().code, "layer {}: {}", l, fits.error().message);
  }
  return PathTable(shape, std::move(layers));
}

PathTable::PathTable(MoeShape shape, std::vector<PathLayer> layers)
    : shape_(shape), layers_(std::move(layers)) {
  for (const PathLayer& layer : layers_) evidence_.push_back(Weigh(layer));
}

// A row lists p(e) for some experts; the others have scale * weaker(e). A ranking needs only log
// p(e) - log(scale * weaker(e)) of the listed ones: the rest is equal for all experts.
PathTable::Evidence PathTable::Weigh(const PathLayer& layer) const {
  constexpr float kLeastScale = 1.0F / 1024;
  Evidence evidence;
  std::vector<float> popularity;
  for (const PathShare share : layer.popularity) popularity.push_back(Probability(share));
  const float all = std::accumulate(popularity.begin(), popularity.end(), 0.0F);
  for (const float p : popularity) evidence.popularity.push_back(std::log(p));
  std::vector<float> single;  // of the key's `last`, all experts
  uint32_t last = kMaxCount;
  size_t begin = 0;
  for (size_t k = 0; k < layer.keys.size(); ++k) {
    if (layer.keys[k].last.value != last) single = popularity;
    last = layer.keys[k].last.value;
    const auto row = std::span(layer.followers).subspan(begin, layer.ends[k] - begin);
    begin = layer.ends[k];
    float listed = 0.0F;
    float weaker = 0.0F;
    for (const PathFollower& f : row) {
      listed += Probability(f.share);
      weaker += single[f.expert.value];
    }
    const float left = all - weaker;
    const float scale = left > 0.0F ? std::clamp((all - listed) / left, kLeastScale, 1.0F) : 1.0F;
    for (const PathFollower& f : row) {
      evidence.gains.push_back(std::log(Probability(f.share) / (scale * single[f.expert.value])));
    }
    if (layer.keys[k].earlier != 0) continue;
    for (float& p : single) p *= scale;
    for (const PathFollower& f : row) single[f.expert.value] = Probability(f.share);
  }
  return evidence;
}

size_t PathTable::keys() const {
  size_t keys = 0;
  for (const PathLayer& layer : layers_) keys += layer.keys.size();
  return keys;
}

size_t PathTable::bytes() const {
  size_t bytes = 0;
  for (const PathLayer& layer : layers_) {
    bytes += layer.popularity.size() * (sizeof(PathShare) + sizeof(float)) +
             layer.keys.size() * (sizeof(PathKey) + sizeof(uint32_t)) +
             layer.followers.size() * (sizeof(PathFollower) + sizeof(float));
  }
  return bytes;
}

void PathTable::AddGains(size_t layer, PathKey key, float weight, std::span<float> scores) const {
  const PathLayer& rows = layers_[layer];
  const auto found = std::ranges::lower_bound(rows.keys, key);
  if (found == rows.keys.end() || *found != key) return;
  const auto k = static_cast<size_t>(found - rows.keys.begin());
  for (size_t i = k == 0 ? 0 : rows.ends[k - 1]; i < rows.ends[k]; ++i) {
    scores[rows.followers[i].expert.value] += weight * evidence_[layer].gains[i];
  }
}

// Logarithms of probabilities are added up as if the experts of `last` were independent evidence,
// and the sum is divided by the root of their number because they are not. Measured against adding
// up probabilities: commit of this file.
void PathTable::Rank(size_t layer, std::span<const ExpertId> last,
                     std::span<const ExpertId> earlier, std::span<ExpertId> best,
                     std::vector<float>& scores) const {
  CHECK(layer >= 1 && layer < shape_.n_layer && best.size() <= shape_.n_expert);
  scores = evidence_[layer].popularity;
  const float weight = last.empty() ? 0.0F : 1.0F / std::sqrt(static_cast<float>(last.size()));
  const float pair_weight = weight / static_cast<float>(std::max<size_t>(earlier.size(), 1));
  for (const ExpertId a : last) {
    AddGains(layer, {.last = a}, weight, scores);
    for (const ExpertId b : earlier) {
      AddGains(layer, {.last = a, .earlier = static_cast<uint16_t>(b.value + 1)}, pair_weight,
               scores);
    }
  }
  for (ExpertId& next : best) {
    const auto top = std::ranges::max_element(scores);
    next.value = static_cast<uint16_t>(top - scores.begin());
    *top = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace moestro
