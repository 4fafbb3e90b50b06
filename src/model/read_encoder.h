// SPDX-License-Identifier: MIT
// The layers of a model with an encoder and a decoder (docs/switch-format.md): the encoder's, each
// attention and a feed-forward part, and behind them the decoder's. A block of the decoder is two
// layers: attention to the target alone, then attention to the source with a feed-forward part.
#pragma once

#include "base/result.h"
#include "core/model_spec.h"
#include "model/meta_keys.h"

namespace moestro {

// Sets layers, encoder and rms_eps. kInvalidFile, kUnsupported.
Status ReadEncoderLayers(const MetaKeys& keys, ModelSpec& spec);
// Sets the values that follow from the vocabulary: the tokens that divide a sequence, and the scale
// of logits. REQUIRES: n_vocab is set.
Status ReadEncoderTokens(const MetaKeys& keys, ModelSpec& spec);

}  // namespace moestro
