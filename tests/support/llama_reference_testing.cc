// SPDX-License-Identifier: MIT
#include "tests/support/llama_reference_testing.h"

#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "compute/backends.h"

namespace moestro {

namespace {

// Whether each group of heads chooses blocks among so many positions.
bool ChoosesBlocks(const llama_model* model, uint32_t n_ctx) {
  const auto number = [&](std::string_view key) -> uint64_t {
    std::array<char, 16> text{};
    const std::string name = "minimax-m3.attention.indexer." + std::string(key);
    const bool is_there =
        llama_model_meta_val_str(model, name.c_str(), text.data(), text.size()) >= 0;
    return is_there ? std::strtoull(text.data(), nullptr, 10) : 0;
  };
  const uint64_t block = number("block_size");
  return block > 0 && block * number("top_k") < n_ctx;
}

}  // namespace

LlamaReference::LlamaReference(const std::string& path, uint32_t n_ctx, uint32_t batch,
                               KvType kv_type, const std::string& device)
    : batch_(batch) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  // Not all that ggml has: asking every GPU's driver takes 80 ms in each process.
  device.empty() ? LoadCpuBackend() : LoadDeviceBackends();
  std::array<ggml_backend_dev_t, 2> devices = {nullptr, nullptr};
  if (!device.empty()) {
    devices[0] = ggml_backend_dev_by_name(device.c_str());
    CHECK(devices[0] != nullptr);
  }
  llama_model_params model_params = llama_model_default_params();
  model_params.devices = devices.data();
  model_params.n_gpu_layers = device.empty() ? 0 : -1;
  model_params.use_extra_bufts = false;
  model_ = llama_model_load_from_file(path.c_str(), model_params);
  CHECK(model_ != nullptr);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = n_ctx;
  params.n_batch = batch;
  params.n_ubatch = batch;
  params.n_threads = 2;
  params.n_threads_batch = 2;
  // The one that adds up values in F32; the other one adds them up in F16 if that is their type,
  // and alone takes quantised ones, or has heads attend to blocks of their own. Then layers whose
  // heads do not have their keys and values in F16, if these are F32.
  const bool is_quantised = kv_type == KvType::kQ8;
  const bool is_fused = is_quantised || (kv_type == KvType::kF32 && ChoosesBlocks(model_, n_ctx));
  params.flash_attn_type =
      is_fused ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = is_quantised              ? GGML_TYPE_Q8_0
                  : kv_type == KvType::kF32 ? GGML_TYPE_F32
                                            : GGML_TYPE_F16;
  params.type_v = params.type_k;
  params.op_offload = false;
  params.cb_eval = Look;
  params.cb_eval_user_data = this;
  context_ = llama_init_from_model(model_, params);
  CHECK(context_ != nullptr);
}

LlamaReference::~LlamaReference() {
  llama_free(context_);
  llama_model_free(model_);
}

void LlamaReference::Reset() {
  llama_memory_clear(llama_get_memory(context_), true);
  position_ = 0;
}

uint32_t LlamaReference::n_vocab() const {
  return static_cast<uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_)));
}

bool LlamaReference::Look(ggml_tensor* tensor, bool ask, void* self) {
  const std::string_view name = tensor->name;
  // After the logits of its layer. Biased logits that are not made probabilities have the name of
  // these.
  const bool is_biased = name.starts_with("ffn_moe_probs_biased-") ||
                         (name.starts_with("ffn_moe_probs-") && tensor->op == GGML_OP_ADD);
  const bool is_router = is_biased || name.starts_with("ffn_moe_logits-");
  if (ask || !is_router) return is_router;
  std::vector<float> values(static_cast<size_t>(ggml_nelements(tensor)));
  ggml_backend_tensor_get(tensor, values.data(), 0, values.size() * sizeof(float));
  auto& scores = static_cast<LlamaReference*>(self)->router_scores_;
  if (is_biased) {
    scores.back() = std::move(values);
  } else {
    scores.push_back(std::move(values));
  }
  return true;
}

std::vector<float> LlamaReference::Append(std::span<const Token> tokens) {
  std::vector<float> logits;
  router_scores_.clear();
  for (size_t at = 0; at < tokens.size(); at += batch_) {
    const auto part = tokens.subspan(at, std::min<size_t>(batch_, tokens.size() - at));
    llama_batch batch = llama_batch_init(static_cast<int32_t>(part.size()), 0, 1);
    batch.n_tokens = static_cast<int32_t>(part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      batch.token[i] = part[i];
      batch.pos[i] = position_++;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    CHECK(llama_decode(context_, batch) == 0);
    for (int32_t i = 0; i < batch.n_tokens; ++i) {
      const float* row = llama_get_logits_ith(context_, i);
      logits.insert(logits.end(), row, row + n_vocab());
    }
    llama_batch_free(batch);
  }
  return logits;
}

}  // namespace moestro
