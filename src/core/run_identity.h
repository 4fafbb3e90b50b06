// SPDX-License-Identifier: MIT
// The model that a trace or a file beside a model was made for, and the flags of the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"

namespace moestro {

// Identity of the model that a trace or a file beside a model was made for.

// Neighbouring layers with experts; `end` is not one of them.
struct ExpertLayers {
  uint32_t begin = 0;
  uint32_t end = 0;

  uint32_t size() const { return end - begin; }
  bool contains(size_t layer) const { return layer >= begin && layer < end; }
};

// The part of a model that routing is about.
struct MoeShape {
  uint32_t n_layer = 0;   // with experts; 1 to 4096
  uint32_t n_expert = 0;  // of a layer; 1 to 4096
  uint32_t n_used = 0;    // K: of a token in a layer; 1 to n_expert
  // Number of the first layers that form an encoder. Tokens of a source go through the encoder's
  // layers, all other tokens through the layers behind them. Below n_layer.
  uint32_t n_encoder = 0;

  uint32_t experts() const { return n_layer * n_expert; }  // of all layers
  ExpertLayers layers_of(bool is_source) const {
    return is_source ? ExpertLayers{.begin = 0, .end = n_encoder}
                     : ExpertLayers{.begin = n_encoder, .end = n_layer};
  }
  ExpertLayers decode_layers() const { return layers_of(false); }
  // Whether tables by layer and expert fit; files beside a model do not mark an encoder's layers.
  bool is_as_large_as(const MoeShape& other) const {
    return n_layer == other.n_layer && n_expert == other.n_expert && n_used == other.n_used;
  }
  // Average share of tokens that use an expert.
  double usual_share() const { return static_cast<double>(n_used) / n_expert; }
  bool operator==(const MoeShape&) const = default;
};

struct ModelId {
  std::string name = {};     // for messages; at most 4096 bytes; empty: unknown
  uint64_t fingerprint = 0;  // see model/gguf_file.h; 0: unknown
  MoeShape shape = {};
  bool operator==(const ModelId&) const = default;

  // The one rule for "made for this model": equal numbers of layers and experts, and no two known
  // fingerprints that differ. Names may change.
  bool may_be(const ModelId& other) const {
    const bool is_known = fingerprint != 0 && other.fingerprint != 0;
    return shape.is_as_large_as(other.shape) && (!is_known || fingerprint == other.fingerprint);
  }
  std::string text() const {  // for messages
    std::string text =
        Format("{} ({} layers, {} of {} experts", name.empty() ? "an unnamed model" : name,
               shape.n_layer, shape.n_used, shape.n_expert);
    if (shape.n_encoder > 0) text += Format(", {} layers an encoder's", shape.n_encoder);
    if (fingerprint != 0) text += Format(", fingerprint {:016x}", fingerprint);
    return text + ")";
  }
};

// A flag by its name and the text of its value, as sweeps turn them and files keep them.

struct KnobSetting {
  std::string knob;  // without dashes
  std::string value;
  bool operator==(const KnobSetting&) const = default;
};
using KnobSettings = std::vector<KnobSetting>;  // each knob once

// "cache=25% prefetch=0"
inline std::string ToText(const KnobSettings& settings) {
  std::string text;
  for (const KnobSetting& s : settings) {
    text += Format("{}{}={}", text.empty() ? "" : " ", s.knob, s.value);
  }
  return text;
}

}  // namespace moestro
