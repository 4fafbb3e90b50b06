// SPDX-License-Identifier: MIT
// The same model file evaluated by libllama, CPU only, nothing repacked: what parity is measured
// against. One thread of the test at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"

struct llama_context;
struct llama_model;

namespace moestro {

class LlamaReference {
 public:
  // Stops the test program when libllama does not take the file. `batch`: tokens per evaluation.
  LlamaReference(const std::string& path, uint32_t n_ctx, uint32_t batch);
  ~LlamaReference();
  LlamaReference(const LlamaReference&) = delete;
  LlamaReference& operator=(const LlamaReference&) = delete;

  // Appends tokens to the sequence: logits of every one, [tokens][n_vocab].
  std::vector<float> Append(std::span<const Token> tokens);
  uint32_t n_vocab() const;

 private:
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  uint32_t batch_;
  int32_t position_ = 0;
};

}  // namespace moestro
