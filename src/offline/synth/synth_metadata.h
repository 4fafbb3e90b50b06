// SPDX-License-Identifier: MIT
// The keys of a synthetic model's GGUF: its properties, and its vocabulary.
#pragma once

#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "offline/synth/synth_plan.h"

namespace moestro {

// Sets general.*, the architecture's keys and `moestro.synthetic`, which marks weights that were
// never trained. The vocabulary is left to the two below.
void SetModelKeys(gguf_context* gguf, const SynthShape& shape, const WeightScheme& scheme,
                  uint64_t seed);

// kSparseKey.
void SetSparseKey(gguf_context* gguf);

// A vocabulary without words: engines take and give token numbers.
void SetNoVocabulary(gguf_context* gguf);

// Keys `tokenizer.*` of a GGUF file. Fails with kInvalidFile if it has no token list.
struct Vocabulary {
  gguf_context_ptr keys;
  uint32_t size = 0;
};
Result<Vocabulary> ReadVocabulary(const std::string& path);

struct SplitPart {
  uint32_t index = 0;
  uint32_t count = 1;      // 1: not split, no keys
  size_t all_tensors = 0;  // of the whole model
};
void SetSplitKeys(gguf_context* gguf, const SplitPart& part);

}  // namespace moestro
