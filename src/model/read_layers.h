// SPDX-License-Identifier: MIT
// Metadata -> the layers of a ModelSpec: the mixer and the feed-forward block of each. A key may
// hold one number for all layers or an array with one for each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/families/families.h"
#include "model/file_checks.h"

namespace moestro {

// Fills layers, n_next_token_layers and rms_eps. `spec` has its embedding,
// context and router. kInvalidFile, kUnsupported, with the key in the message.
Status ReadLayers(const MetaKeys& keys, const Family& family, NextTokens next, ModelSpec& spec);

// Layers that predict further tokens and are passed over: the last ones of the file.
struct NextTokenLayers {
  uint32_t first = 0;
  uint32_t end = 0;
};
// kInvalidFile: one of `layers` has tensors, but none called nextn as layers that predict further
// tokens have: `key`, which counts such layers, would make the model lose a layer.
Status CheckNextTokenLayers(const GgufFile& file, const NextTokenLayers& layers,
                            const std::string& key);

// "key is value: `what` are not supported for this architecture".
std::unexpected<Error> RefuseKey(const MetaKeys& keys, std::string_view key, uint64_t value,
                                 std::string_view what);

}  // namespace moestro
