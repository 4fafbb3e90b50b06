// SPDX-License-Identifier: MIT
// The same model file evaluated by libllama, nothing repacked: what parity is measured against. On
// the CPU alone, or all of it on one device. One thread of the test at a time.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/kv_cells.h"

struct llama_context;
struct llama_model;

namespace moestro {

class LlamaReference {
 public:
  // Stops the test program when libllama does not take the file. `batch`: tokens per evaluation.
  // `device`: ggml's name of one; empty: the CPU.
  LlamaReference(const std::string& path, uint32_t n_ctx, uint32_t batch,
                 KvType kv_type = KvType::kF16, const std::string& device = "");
  ~LlamaReference();
  LlamaReference(const LlamaReference&) = delete;
  LlamaReference& operator=(const LlamaReference&) = delete;

  // Forgets them.
  void Reset();
  // Appends tokens to the sequence: logits of every one, [tokens][n_vocab].
  std::vector<float> Append(std::span<const Token> tokens);
  uint32_t n_vocab() const;
  // Of the last Append(), if that was one batch: [layer][token][experts], before any softmax.
  const std::vector<std::vector<float>>& router_scores() const { return router_scores_; }

 private:
  // llama.cpp asks which tensors of its graph to show, then shows them.
  static bool Look(ggml_tensor* tensor, bool ask, void* self);

  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  uint32_t batch_;
  int32_t position_ = 0;
  std::vector<std::vector<float>> router_scores_;
};

}  // namespace moestro
