// SPDX-License-Identifier: MIT
// Learns a PathTable from routing, token by token. Thread rule: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "decide/ahead/path_table.h"

namespace moestro {

class PathCounter {
 public:
  // Number of pairs of a layer that are kept, those seen most often: with 48 layers of 128 experts
  // a file takes 4 MiB at most. Half as many cost 0.4 points of recall on the OLMoE trace, all
  // would add less than 0.1.
  static constexpr size_t kMaxPairs = 1536;

  // REQUIRES: PathTable::CheckShape(shape).
  explicit PathCounter(MoeShape shape) : shape_(shape) {}

  // A token's experts, [layers][K]; two bytes each are kept. Entries of layers that the token does
  // not go through are ignored. REQUIRES: in all other layers ids are below `experts`, none twice
  // in a layer; a source only with an encoder.
  void Add(std::span<const ExpertId> experts, bool is_source = false);

  void Reserve(size_t tokens) {
    experts_.reserve(tokens * shape_.n_layer * shape_.n_used);
    is_source_.reserve(tokens);
  }

  const MoeShape& shape() const { return shape_; }
  size_t tokens() const { return is_source_.size(); }
  bool is_source(size_t token) const { return is_source_[token]; }
  // Whether the token goes through the layer, and through `before` layers in front of it.
  bool goes_through(size_t token, size_t layer, size_t before = 0) const {
    const ExpertLayers layers = shape_.layers_of(is_source_[token]);
    return layers.contains(layer) && layer >= layers.begin + before;
  }
  std::span<const ExpertId> of(size_t token, size_t layer) const {
    return std::span(experts_).subspan((token * shape_.n_layer + layer) * shape_.n_used,
                                       shape_.n_used);
  }
  // Learns a table from the first `tokens`; with none, all experts are equally likely. REQUIRES:
  // tokens <= tokens().
  PathTable Learn(size_t tokens) const;
  PathTable Learn() const { return Learn(tokens()); }

 private:
  PathLayer LearnLayer(size_t layer, size_t tokens) const;

  MoeShape shape_;
  std::vector<ExpertId> experts_;  // [token][layer][K]
  std::vector<bool> is_source_;    // [token]
};

}  // namespace moestro
