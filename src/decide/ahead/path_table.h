// SPDX-License-Identifier: MIT
// Table of the experts that a layer's routers choose after those of the one or two layers before,
// learned from routing: EdgeMoE's dictionary of activation paths, for routers that choose K experts
// at a time.
//
// For each layer from 1 on: how popular its experts are; which of them follow an expert `last` of
// the layer before; and which follow `last` when `earlier` was among the experts of the layer
// before that. A row lists the likeliest followers only; the others keep the probabilities of the
// next weaker row (pair, then single, then popularity), scaled so that a row's probabilities sum to
// K.
//
// Values: a table never changes, so that several threads may share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/run_identity.h"

namespace moestro {

// A probability in 65535ths, from 1 on.
using PathShare = uint16_t;

struct PathFollower {
  ExpertId expert;
  PathShare share = 0;
  bool operator==(const PathFollower&) const = default;
};

// Experts that precede a follower. Ordered: the key of `last` alone comes before its pairs.
struct PathKey {
  ExpertId last;         // chosen one layer before
  uint16_t earlier = 0;  // 0: whatever came earlier; else 1 + the expert chosen two layers before
  auto operator<=>(const PathKey&) const = default;
};

struct PathLayer {
  std::vector<PathShare> popularity = {};  // [experts]; empty for layer 0
  std::vector<PathKey> keys = {};          // ascending
  // [key]: end of the key's followers, and begin of the next key's.
  std::vector<uint32_t> ends = {};
  std::vector<PathFollower> followers = {};  // of one key: likeliest first
  bool operator==(const PathLayer&) const = default;
};

class PathTable {
 public:
  // Most followers that a key lists.
  static constexpr size_t kMaxFollowers = 64;

  // kInvalidFile, naming layer and value, if something does not fit the shape or the promises
  // above.
  static Result<PathTable> Create(MoeShape shape, std::vector<PathLayer> layers);
  static Status CheckShape(const MoeShape& shape);

  const MoeShape& shape() const { return shape_; }
  std::span<const PathLayer> layers() const { return layers_; }
  size_t keys() const;
  size_t bytes() const;  // of memory, about

  // The `best.size()` experts of `layer` that follow most likely, likeliest first. `last` are the
  // experts chosen one layer before, `earlier` two layers before; either may be empty: not known.
  // `scores` is working memory. REQUIRES: 1 <= layer < layers; best.size() <= experts; ids are
  // below `experts`.
  void Rank(size_t layer, std::span<const ExpertId> last, std::span<const ExpertId> earlier,
            std::span<ExpertId> best, std::vector<float>& scores) const;

  bool operator==(const PathTable& other) const {
    return shape_ == other.shape_ && layers_ == other.layers_;
  }

 private:
  // Evidence of a layer, as logarithms, so that it is added up.
  struct Evidence {
    std::vector<float> popularity;  // [expert]
    // [follower]: the factor by which its key raises the follower's probability over the next
    // weaker row's, relative to the factor of the experts that the key does not list.
    std::vector<float> gains;
  };

  PathTable(MoeShape shape, std::vector<PathLayer> layers);
  Evidence Weigh(const PathLayer& layer) const;
  void AddGains(size_t layer, PathKey key, float weight, std::span<float> scores) const;

  MoeShape shape_;
  std::vector<PathLayer> layers_;
  std::vector<Evidence> evidence_;  // [layer]
};

}  // namespace moestro
