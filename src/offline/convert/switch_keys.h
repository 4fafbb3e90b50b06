// SPDX-License-Identifier: MIT
// The keys of a Switch Transformers GGUF but for its tokenizer: docs/switch-format.md.
#pragma once

#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "offline/convert/unigram.h"

namespace moestro {

// The sizes of a Switch Transformers model, as config.json has them (docs/switch-format.md). Pure
// functions.

enum class SwitchStack : uint8_t { kEncoder, kDecoder };

struct SwitchConfig {
  std::string name;  // _name_or_path; empty: the config lacks it
  uint32_t encoder_layers = 0;
  uint32_t decoder_layers = 0;
  uint32_t embd = 0;
  uint32_t ff = 0;
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t experts = 0;
  uint32_t capacity = 0;
  uint32_t encoder_step = 0;
  uint32_t decoder_step = 0;
  uint32_t buckets = 0;
  uint32_t max_distance = 0;
  uint32_t context = 0;
  uint32_t vocab = 0;
  uint32_t start_token = 0;
  uint32_t pad_token = 0;
  uint32_t eos_token = 0;
  float epsilon = 0;
  bool is_tied = true;

  uint32_t layers(SwitchStack stack) const {
    return stack == SwitchStack::kEncoder ? encoder_layers : decoder_layers;
  }
  // Whether the layer's feed-forward block is experts: transformers' rule.
  bool is_sparse(SwitchStack stack, uint32_t layer) const {
    const uint32_t step = stack == SwitchStack::kEncoder ? encoder_step : decoder_step;
    return step == 1 || (step > 1 && layer % step == 1);
  }
};

// kInvalidFile: a key is missing or has an impossible value; kUnsupported: another kind of model,
// or one with parts that this engine does not run. `file`: the file's name in messages.
Result<SwitchConfig> ReadSwitchConfig(const Json& json, const std::string& file);

// type: of the matrices, one of those of FindConvertType().
void SetSwitchKeys(gguf_context* gguf, const SwitchConfig& config, ggml_type type);

// The tokenizer of a Switch Transformers folder as keys of a GGUF, as llama.cpp has T5's
// (docs/switch-format.md).

// spiece.model with the sentinels behind, or else tokenizer.json. kIo, kUnsupported: the folder has
// neither file, or they cannot be read; errors of ParseSentencePiece() and ParseTokenizerJson().
Result<UnigramVocab> ReadSwitchTokenizer(const std::string& folder);

// One token for each row of the embedding: unused ones fill the end. kInvalidFile: more pieces than
// rows, or the end of a text is not a control token.
Status FillRows(UnigramVocab& vocab, const SwitchConfig& config);

// REQUIRES: FillRows().
void SetTokenizerKeys(gguf_context* gguf, const UnigramVocab& vocab, const SwitchConfig& config);

}  // namespace moestro
