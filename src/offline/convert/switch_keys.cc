// SPDX-License-Identifier: MIT
#include "offline/convert/switch_keys.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace moestro {
namespace {

// llama.cpp's numbers for general.file_type.
uint32_t FileType(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F16:
      return 1;
    case GGML_TYPE_Q4_0:
      return 2;
    case GGML_TYPE_Q8_0:
      return 7;
    case GGML_TYPE_BF16:
      return 32;
    default:
      return 0;  // F32
  }
}

}  // namespace

void SetSwitchKeys(gguf_context* gguf, const SwitchConfig& config, ggml_type type) {
  gguf_set_val_str(gguf, "general.architecture", "switch");
  gguf_set_val_str(gguf, "general.name", config.name.c_str());
  gguf_set_val_u32(gguf, "general.file_type", FileType(type));
  gguf_set_val_u32(gguf, "general.quantization_version", GGML_QNT_VERSION);
  const std::array<std::pair<std::string_view, uint32_t>, 17> numbers{{
      {"context_length", config.context},
      {"block_count", config.encoder_layers},
      {"decoder_block_count", config.decoder_layers},
      {"embedding_length", config.embd},
      {"feed_forward_length", config.ff},
      {"expert_feed_forward_length", config.ff},
      {"attention.head_count", config.heads},
      {"attention.key_length", config.head_dim},
      {"attention.value_length", config.head_dim},
      {"attention.relative_buckets_count", config.buckets},
      {"attention.relative_max_distance", config.max_distance},
      {"expert_count", config.experts},
      {"expert_used_count", 1},
      {"expert_capacity", config.capacity},
      {"encoder_sparse_step", config.encoder_step},
      {"decoder_sparse_step", config.decoder_step},
      {"decoder_start_token_id", config.start_token},
  }};
  for (const auto& [key, value] : numbers) {
    gguf_set_val_u32(gguf, Format("switch.{}", key).c_str(), value);
  }
  gguf_set_val_f32(gguf, "switch.attention.layer_norm_rms_epsilon", config.epsilon);
}

}  // namespace moestro
