// SPDX-License-Identifier: MIT
// The sizes of a Switch Transformers model, as config.json has them (docs/switch-format.md). Pure
// functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace moestro {

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

}  // namespace moestro
