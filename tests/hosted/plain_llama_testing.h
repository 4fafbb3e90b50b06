// SPDX-License-Identifier: MIT
// A model in plain libllama, all of it in memory, with the context that the hosted engine asks for.
// One thread of the test at a time.
#pragma once

#include <llama.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/backends.h"
#include "core/ids.h"

namespace moestro {

class PlainLlama {
 public:
  static constexpr uint32_t kSequences = 6;

  PlainLlama(const std::string& path, uint32_t n_ctx, uint32_t threads) {
    LoadCpuBackend();
    std::array<ggml_backend_dev_t, 1> none = {nullptr};
    llama_model_params params = llama_model_default_params();
    params.devices = none.data();
    params.n_gpu_layers = 0;
    params.use_extra_bufts = false;
    model_.reset(llama_model_load_from_file(path.c_str(), params));
    CHECK(model_ != nullptr);
    llama_context_params shape = llama_context_default_params();
    shape.n_ctx = shape.n_batch = shape.n_ubatch = n_ctx;
    shape.n_seq_max = kSequences;
    shape.n_threads = shape.n_threads_batch = static_cast<int32_t>(threads);
    shape.kv_unified = true;
    shape.swa_full = true;
    shape.offload_kqv = false;
    shape.op_offload = false;
    context_.reset(llama_init_from_model(model_.get(), shape));
    CHECK(context_ != nullptr);
  }

  // Rows of one sequence in one llama_decode(): the logits of each, [rows][n_vocab].
  std::vector<float> Append(std::span<const Token> tokens, int32_t sequence = 0) {
    return Append(tokens, std::vector<int32_t>(tokens.size(), sequence));
  }
  // Each token goes to the sequence at its place. REQUIRES: sequences are below kSequences.
  std::vector<float> Append(std::span<const Token> tokens, std::span<const int32_t> sequences) {
    llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
    batch.n_tokens = static_cast<int32_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      batch.token[i] = tokens[i];
      batch.pos[i] = positions_.at(static_cast<size_t>(sequences[i]))++;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = sequences[i];
      batch.logits[i] = 1;
    }
    CHECK(llama_decode(context_.get(), batch) == 0);
    llama_batch_free(batch);
    const auto n_vocab =
        static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_.get())));
    std::vector<float> logits;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const float* row = llama_get_logits_ith(context_.get(), static_cast<int32_t>(i));
      logits.insert(logits.end(), row, row + n_vocab);
    }
    return logits;
  }

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  std::unique_ptr<llama_model, Free> model_;
  std::unique_ptr<llama_context, Free> context_;
  std::array<llama_pos, kSequences> positions_{};
};

}  // namespace moestro
