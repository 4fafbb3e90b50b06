// SPDX-License-Identifier: MIT
// Chooses the ggml type of each matrix of a synthetic model: one type throughout, or the mixes that
// llama-quantize makes. Where a row is no whole number of blocks the next type that fits is taken,
// as llama-quantize does. Pure functions.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moestro {

enum class MatrixRole {
  kTokenEmbd,
  kOutput,
  kAttnQ,
  kAttnK,
  kAttnV,  // also q, k and v in one matrix
  kAttnOutput,
  kExpertGateUp,
  kExpertDown,
  kSharedGateUp,
  kSharedDown,
  kDenseGateUp,
  kDenseDown,
  kQueryLatent,  // where a family's mixes favour the two matrices of queries
  kStreamsDown,  // of residual streams, to the low rank, which mixes take for ffn_down
  kKept,         // not quantised
  kOther,        // roles without a special type in any mix
};

// A name for `--type`, with its types.
struct WeightScheme {
  std::string name;
  ggml_type base = GGML_TYPE_F16;
  uint32_t file_type = 0;  // general.file_type, llama.cpp's numbering
  bool is_mix = false;     // Q4_K_M: some matrices get more bits
  // `base` is for experts only, and for matrices of single heads; all others are Q8_0 (MXFP4).
  bool is_experts_only = false;
};

// Names are matched without case. Fails with kUsage; the message lists the names.
Result<WeightScheme> FindScheme(std::string_view name);
std::vector<std::string> SchemeNames();

struct MatrixContext {
  MatrixRole role;
  uint32_t layer = 0;
  uint32_t layers = 1;
  uint32_t experts = 1;
  int64_t row = 0;           // values in a row
  bool is_tied = false;      // token_embd serves as output too
  bool is_of_heads = false;  // a matrix for each head
};

ggml_type TypeFor(const WeightScheme& scheme, const MatrixContext& place);

}  // namespace moestro
