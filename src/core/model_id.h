// SPDX-License-Identifier: MIT
// Which model something was made for: traces, and the files that lie beside a model.
#pragma once

#include <cstdint>
#include <string>

#include "base/format.h"

namespace moestro {

// The part of a model that routing is about.
struct MoeShape {
  uint32_t n_layer = 0;   // with experts; 1 to 4096
  uint32_t n_expert = 0;  // of a layer; 1 to 4096
  uint32_t n_used = 0;    // K: of a token in a layer; 1 to n_expert

  uint32_t experts() const { return n_layer * n_expert; }  // of all layers
  // Of tokens that use an expert, on average.
  double usual_share() const { return static_cast<double>(n_used) / n_expert; }
  bool operator==(const MoeShape&) const = default;
};

struct ModelId {
  std::string name = {};     // for messages; at most 4096 bytes; empty: unknown
  uint64_t fingerprint = 0;  // see model/fingerprint.h; 0: unknown
  MoeShape shape = {};
  bool operator==(const ModelId&) const = default;

  // The one rule for "made for this model": the same shape, and no two known fingerprints that
  // differ. Names may change.
  bool may_be(const ModelId& other) const {
    const bool is_known = fingerprint != 0 && other.fingerprint != 0;
    return shape == other.shape && (!is_known || fingerprint == other.fingerprint);
  }
  std::string text() const {  // for messages
    std::string text =
        Format("{} ({} layers, {} of {} experts", name.empty() ? "an unnamed model" : name,
               shape.n_layer, shape.n_used, shape.n_expert);
    if (fingerprint != 0) text += Format(", fingerprint {:016x}", fingerprint);
    return text + ")";
  }
};

}  // namespace moestro
