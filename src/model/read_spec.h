// SPDX-License-Identifier: MIT
// Metadata -> ModelSpec by the rules of the model's family, every value checked and named in the
// error.
#pragma once

#include <span>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/families/families.h"
#include "model/file_checks.h"
#include "model/gguf_file.h"

namespace moestro {

// The layers of a model with an encoder and a decoder (docs/switch-format.md): the encoder's, each
// attention and a feed-forward part, and behind them the decoder's. A block of the decoder is two
// layers: attention to the target alone, then attention to the source with a feed-forward part.

// Sets layers, encoder and rms_eps. kInvalidFile, kUnsupported.
Status ReadEncoderLayers(const MetaKeys& keys, ModelSpec& spec);
// Sets the values that follow from the vocabulary: the tokens that divide a sequence, and the scale
// of logits. REQUIRES: n_vocab is set.
Status ReadEncoderTokens(const MetaKeys& keys, ModelSpec& spec);

// Fails with kUnsupported for an unknown architecture (lists the supported ones), a dense model or
// a feature that the family lacks, kInvalidFile for missing, contradictory or absurd values.
// phimoe's long and short rope factors are chosen later, by the context in use: long ones above
// rope.original_context. ReadWeights() checks every dimension again against the tensors.
Result<ModelSpec> ReadSpec(const GgufFile& file, std::span<const Family> families = Families(),
                           NextTokens next = NextTokens::kPassedOver);

}  // namespace moestro
