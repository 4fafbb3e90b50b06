// SPDX-License-Identifier: MIT
#include "offline/synth/synth_metadata.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "model/expert_tensors.h"
#include "model/gguf_header.h"
#include "offline/gguf_output.h"
#include "offline/synth/synth_plan.h"

namespace moestro {
namespace {

// Keys of one architecture: "{arch}.{suffix}".
class ArchKeys {
 public:
  ArchKeys(gguf_context* gguf, std::string arch) : gguf_(gguf), arch_(std::move(arch)) {}
  void Set(std::string_view suffix, uint32_t value) {
    gguf_set_val_u32(gguf_, Format("{}.{}", arch_, suffix).c_str(), value);
  }
  void Set(std::string_view suffix, bool value) {
    gguf_set_val_bool(gguf_, Format("{}.{}", arch_, suffix).c_str(), value);
  }
  void Set(std::string_view suffix, const char* value) {
    gguf_set_val_str(gguf_, Format("{}.{}", arch_, suffix).c_str(), value);
  }
  void Set(std::string_view suffix, std::span<const int32_t> values) {
    gguf_set_arr_data(gguf_, Format("{}.{}", arch_, suffix).c_str(), GGUF_TYPE_INT32, values.data(),
                      values.size());
  }
  void Set(std::string_view suffix, const std::vector<float>& values) {
    gguf_set_arr_data(gguf_, Format("{}.{}", arch_, suffix).c_str(), GGUF_TYPE_FLOAT32,
                      values.data(), values.size());
  }
  void Set(std::string_view suffix, const std::vector<uint64_t>& values) {
    gguf_set_arr_data(gguf_, Format("{}.{}", arch_, suffix).c_str(), GGUF_TYPE_UINT64,
                      values.data(), values.size());
  }
  void Set(std::string_view suffix, const std::vector<uint32_t>& values) {
    gguf_set_arr_data(gguf_, Format("{}.{}", arch_, suffix).c_str(), GGUF_TYPE_UINT32,
                      values.data(), values.size());
  }
  void Set(std::string_view suffix, const std::vector<bool>& values) {
    const std::vector<int8_t> bytes(values.begin(), values.end());
    gguf_set_arr_data(gguf_, Format("{}.{}", arch_, suffix).c_str(), GGUF_TYPE_BOOL, bytes.data(),
                      bytes.size());
  }
  void Set(std::string_view suffix, float value) {
    gguf_set_val_f32(gguf_, Format("{}.{}", arch_, suffix).c_str(), value);
  }

 private:
  gguf_context* gguf_;
  std::string arch_;
};

const Family& FamilyOf(const SynthShape& shape) {
  const Family* family = FindSynthFamily(shape.arch);
  CHECK(family != nullptr);
  return *family;
}

// feed_forward_length as the stock converters write it, by family: one expert's width, the width
// active per token (Qwen), or a dense layer's.
uint32_t DeclaredFeedForward(const SynthShape& shape) {
  switch (FamilyOf(shape).feed_forward_length) {
    case FeedForwardLength::kOneExpert:
      return shape.ff;
    case FeedForwardLength::kUsedExperts:
      return shape.shared_ff > 0 ? shape.shared_ff : shape.ff * shape.used;
    case FeedForwardLength::kDenseLayer:
      return shape.dense_ff > 0 ? shape.dense_ff : shape.ff;
  }
  std::unreachable();
}

void SetRopeKeys(ArchKeys& keys, const SynthShape& shape) {
  keys.Set("rope.freq_base", shape.rope_base);
  if (FamilyOf(shape).written.has_rope_length_key) {
    keys.Set("rope.dimension_count", FamilyOf(shape).latent.has_turned ? shape.rope_dim() : 0U);
  }
  if (FamilyOf(shape).written.has_rope_sections) {  // thirds, for a text and an image
    const uint32_t pairs = shape.rope_dim() / 2;
    const std::array<int32_t, 4> sections = {static_cast<int32_t>((pairs + 2) / 3),
                                             static_cast<int32_t>((pairs + 1) / 3),
                                             static_cast<int32_t>(pairs / 3), 0};
    keys.Set("rope.dimension_sections", sections);
  }
  if (shape.orig_context == 0) return;
  keys.Set("rope.scaling.original_context_length", shape.orig_context);
  if (shape.yarn_factor > 0) {
    keys.Set("rope.scaling.type", "yarn");
    keys.Set("rope.scaling.factor", shape.yarn_factor);
    if (shape.yarn_log > 0) keys.Set("rope.scaling.yarn_log_multiplier", shape.yarn_log);
    return;
  }
  const double stretch = static_cast<double>(shape.context) / shape.orig_context;
  const double factor =
      stretch > 1 ? std::sqrt(1 + std::log(stretch) / std::log(shape.orig_context)) : 1;
  keys.Set("rope.scaling.attn_factor", static_cast<float>(factor));
}

// Sets the keys of models whose layers are a mixer or experts alone.
void SetPatternKeys(ArchKeys& keys, const SynthShape& shape) {
  std::vector<int32_t> widths;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    widths.push_back(shape.has_experts(l) ? static_cast<int32_t>(shape.ff) : 0);
  }
  keys.Set("feed_forward_length", widths);
  keys.Set("expert_shared_count", 1U);
  if (shape.latent > 0) keys.Set("moe_latent_size", shape.latent);
}

// Sets the keys of layers with a window, where they have heads of their own.
void SetWindowKeys(ArchKeys& keys, const SynthShape& shape) {
  std::vector<int32_t> kv_heads;
  std::vector<bool> has_window;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    has_window.push_back(shape.has_window(l));
    kv_heads.push_back(
        static_cast<int32_t>(has_window[l] ? shape.window_kv_heads : shape.kv_heads));
  }
  keys.Set("attention.head_count_kv", kv_heads);
  keys.Set("attention.sliding_window_pattern", has_window);
  keys.Set("attention.key_length_swa", shape.window_head_dim);
  keys.Set("attention.value_length_swa", shape.window_head_dim);
  keys.Set("rope.dimension_count_swa", shape.window_head_dim);
  keys.Set("rope.freq_base_swa", 1e4F);
  // Features of smaller models without experts are off.
  keys.Set("embedding_length_per_layer_input", 0U);
  keys.Set("attention.shared_kv_layers", 0U);
  keys.Set("final_logit_softcapping", 3.0F);  // 30 would not be felt
}

// Sets the keys of latent attention. Lengths of a key and a value are those in the latent, with
// those of a head beside them, or those of a head alone in joined files.
void SetLatentKeys(ArchKeys& keys, const SynthShape& shape) {
  keys.Set("attention.kv_lora_rank", shape.kv_latent);
  if (shape.query_latent > 0) keys.Set("attention.q_lora_rank", shape.query_latent);
  if (shape.indexer_heads > 0) {
    keys.Set("attention.indexer.head_count", shape.indexer_heads);
    keys.Set("attention.indexer.key_length", shape.indexer_dim);
    keys.Set("attention.indexer.top_k", shape.top_k);
    if (shape.pool > 0) {
      keys.Set("attention.indexer.kpool", shape.pool);
      keys.Set("attention.indexer.kpool_select_tail", true);
      keys.Set("attention.layer_norm_epsilon", kSynthIndexerEps);
    }
  }
  if (shape.indexer_every > 0) {
    std::vector<int32_t> types;
    for (uint32_t l = 0; l < shape.layers; ++l) types.push_back(shape.shares_indexer(l) ? 0 : 1);
    keys.Set("attention.indexer.types", types);
  }
  if (shape.is_joined) {
    keys.Set("attention.head_count_kv", shape.heads);
    keys.Set("attention.key_length", shape.head_dim);
    keys.Set("attention.value_length", shape.value_dim);
    return;
  }
  keys.Set("attention.key_length", shape.kv_latent + shape.rotated);
  keys.Set("attention.value_length", shape.kv_latent);
  keys.Set("attention.key_length_mla", shape.head_dim);
  keys.Set("attention.value_length_mla", shape.value_dim);
}

// Sets limits of gates and up projections, which only late layers have.
void SetLimitKeys(ArchKeys& keys, const SynthShape& shape) {
  const auto of_layers = [&](float limit) {
    std::vector<float> limits(shape.layers, limit);
    std::fill_n(limits.begin(), shape.limited_from, 0.0F);
    return limits;
  };
  keys.Set("swiglu_clamp_exp", of_layers(shape.limit_expert));
  keys.Set("swiglu_clamp_shexp", of_layers(shape.limit_shared));
}

// Sets the keys of indexers of blocks; layers with a state have none.
void SetBlockKeys(ArchKeys& keys, const SynthShape& shape) {
  keys.Set("attention.indexer.head_count", shape.indexer_heads);
  keys.Set("attention.indexer.key_length", shape.indexer_dim);
  keys.Set("attention.indexer.top_k", shape.top_k);
  std::vector<uint32_t> ratios;
  for (uint32_t l = 0; l < shape.layers; ++l) {
    ratios.push_back(shape.has_attention(l) ? shape.pool : 0);
  }
  keys.Set("attention.compress_ratios", ratios);
}

// Sets the keys of blocks that each head of an indexer chooses.
void SetKeysOfHeads(ArchKeys& keys, const SynthShape& shape) {
  keys.Set("attention.indexer.head_count", shape.kv_heads);
  keys.Set("attention.indexer.key_length", shape.indexer_dim);
  keys.Set("attention.indexer.top_k", shape.top_k / shape.pool);
  keys.Set("attention.indexer.block_size", shape.pool);
  keys.Set("attention.indexer.local_blocks", shape.last_pools);
}

// Sets the keys of attention to the last positions and to pools.
void SetPooledKeys(ArchKeys& keys, const SynthShape& shape) {
  keys.Set("attention.q_lora_rank", shape.query_latent);
  keys.Set("attention.output_group_count", shape.head_groups);
  keys.Set("attention.output_lora_rank", shape.group_out);
  keys.Set("attention.indexer.head_count", shape.indexer_heads);
  keys.Set("attention.indexer.key_length", shape.indexer_dim);
  keys.Set("attention.indexer.top_k", shape.top_k);
  std::vector<uint32_t> ratios;
  for (uint32_t l = 0; l < shape.layers; ++l) ratios.push_back(shape.pool_of(l));
  keys.Set("attention.compress_ratios", ratios);
  keys.Set("attention.compress_rope_freq_base", kSynthPoolRopeBase);
}

void SetNgramKeys(ArchKeys& keys, const SynthShape& shape) {
  const NgramSpec ngrams = *SpecOf(shape).ngrams;
  std::vector<uint64_t> firsts;
  std::vector<uint64_t> counts;
  for (const NgramSpec::Head& head : ngrams.heads) {
    firsts.push_back(head.first);
    counts.push_back(head.count);
  }
  keys.Set("ple.layers", std::vector{shape.ngram_layer});
  keys.Set("ple.ngram_size", ngrams.n_most);
  keys.Set("ple.heads_per_ngram", ngrams.heads_of_each);
  keys.Set("ple.conv_kernel", ngrams.n_taps);
  keys.Set("ple.eos_token_id", static_cast<uint32_t>(ngrams.end));
  keys.Set("ple.layer_multipliers", ngrams.factors);
  keys.Set("ple.head_offsets", firsts);
  keys.Set("ple.head_vocab_sizes", counts);
  keys.Set("embedding_length_per_layer_input", ngrams.n_values);
}

void SetStreamKeys(ArchKeys& keys, const SynthShape& shape) {
  keys.Set("hyper_connection.count", shape.streams);
  if (shape.stream_rank > 0) {
    keys.Set("hyper_connection.low_rank", shape.stream_rank);
    return;
  }
  keys.Set("hyper_connection.sinkhorn_iterations", kSynthStreamIterations);
  keys.Set("hyper_connection.epsilon", kSynthStreamEps);
}

void SetEncoderKeys(ArchKeys& keys, const SynthShape& shape) {
  constexpr uint32_t kCapacity = 64;  // of the published models
  keys.Set("block_count", shape.encoder_layers);
  keys.Set("decoder_block_count", (shape.layers - shape.encoder_layers) / 2);
  keys.Set("attention.relative_buckets_count", kSynthBuckets);
  keys.Set("attention.relative_max_distance", kSynthDistance);
  keys.Set("expert_capacity", kCapacity);
  keys.Set("encoder_sparse_step", shape.sparse_every);
  keys.Set("decoder_sparse_step", shape.sparse_every);
  keys.Set("decoder_start_token_id", 0U);
}

void SetStateKeys(ArchKeys& keys, const SynthShape& shape, const StateRules& rules) {
  if (rules.layers == StateLayers::kByInterval) {
    keys.Set("full_attention_interval", shape.attention_every);
  } else {
    std::vector<int32_t> kv_heads;
    for (uint32_t l = 0; l < shape.layers; ++l) {
      kv_heads.push_back(shape.has_attention(l) ? static_cast<int32_t>(shape.kv_heads) : 0);
    }
    keys.Set("attention.head_count_kv", kv_heads);
  }
  if (rules.mixer == StateMixer::kShortConv) {
    keys.Set("shortconv.l_cache", shape.taps);
    return;
  }
  if (rules.mixer == StateMixer::kKimiDelta) {
    keys.Set("ssm.conv_kernel", shape.taps);
    keys.Set("kda.head_dim", shape.state_dim);
    if (rules.has_decay_bound) {
      if (!rules.has_negative_rates) keys.Set("kda.safe_gate", true);
      keys.Set("kda.gate_lower_bound", kSynthDecayBound);
    }
    return;
  }
  const bool is_mamba = rules.mixer == StateMixer::kMamba2;
  keys.Set("ssm.conv_kernel", shape.taps);
  keys.Set("ssm.group_count", shape.state_key_heads);
  keys.Set("ssm.inner_size", shape.state_heads * shape.state_dim);
  keys.Set("ssm.state_size", is_mamba ? shape.state_size : shape.state_dim);
  keys.Set("ssm.time_step_rank", shape.state_heads);
}

}  // namespace

void SetModelKeys(gguf_context* gguf, const SynthShape& shape, const WeightScheme& scheme,
                  uint64_t seed) {
  gguf_set_val_str(gguf, "general.architecture", shape.arch.c_str());
  gguf_set_val_str(gguf, "general.name",
                   Format("synthetic weights, shape of {}", shape.name).c_str());
  gguf_set_val_u32(gguf, "general.file_type", scheme.file_type);
  gguf_set_val_u32(gguf, "general.quantization_version", GGML_QNT_VERSION);
  gguf_set_val_bool(gguf, "moestro.synthetic", true);
  gguf_set_val_u64(gguf, "moestro.synthetic.seed", seed);

  ArchKeys keys(gguf, shape.arch);
  keys.Set("block_count", shape.layers + shape.predicting);
  if (shape.predicting > 0) keys.Set("nextn_predict_layers", shape.predicting);
  keys.Set("context_length", shape.context);
  keys.Set("embedding_length", shape.embd);
  keys.Set("feed_forward_length", DeclaredFeedForward(shape));
  keys.Set("attention.head_count", shape.heads);
  keys.Set("attention.head_count_kv", shape.kv_heads);
  keys.Set("attention.layer_norm_rms_epsilon", shape.rms_eps);
  const Family& family = FamilyOf(shape);
  if (family.has_other_epsilon_name) keys.Set("attention.layer_norm_epsilon", shape.rms_eps);
  if (family.written.has_head_length_keys || shape.q_width() != shape.embd) {
    keys.Set("attention.key_length", shape.head_dim);
    keys.Set("attention.value_length", shape.head_dim);
  }
  SetRopeKeys(keys, shape);
  keys.Set("expert_count", shape.experts);
  keys.Set("expert_used_count", shape.used);
  const bool is_one = family.feed_forward_length == FeedForwardLength::kOneExpert;
  if (!is_one || family.written.has_expert_length_key) {
    keys.Set("expert_feed_forward_length", shape.ff);
  }
  const bool is_counted = family.shared_expert == SharedExpertKind::kCounted;
  if (family.shared_expert != SharedExpertKind::kNone && !is_counted) {
    keys.Set("expert_shared_feed_forward_length", shape.shared_ff);
  }
  if (is_counted) keys.Set("expert_shared_count", shape.shared_ff / shape.ff);
  if (family.written.has_shared_count_key) keys.Set("expert_shared_count", 1U);
  if (family.has_dense_layers) keys.Set("leading_dense_block_count", shape.dense_layers);
  if (family.router.gating_key != Presence::kNone) {
    const Gating gating = shape.has_sigmoid ? Gating::kSigmoid : family.router.gating;
    keys.Set("expert_gating_func", static_cast<uint32_t>(gating) + 1);
  }
  const float scale = shape.weights_scale > 0 ? shape.weights_scale : family.written.weights_scale;
  if (scale > 0) {
    keys.Set("expert_weights_scale", scale);
    keys.Set("expert_weights_norm", true);
  }
  if (family.states.mixer != StateMixer::kNone) SetStateKeys(keys, shape, family.states);
  if (family.has_lone_parts) SetPatternKeys(keys, shape);
  if (family.windows.has_own_heads) SetWindowKeys(keys, shape);
  if (family.latent.is_used) SetLatentKeys(keys, shape);
  if (family.has_scales) {  // near those of published models, but not as small, so that tests
                            // notice them
    keys.Set("embedding_scale", 1.5F);
    keys.Set("residual_scale", 0.75F);
    keys.Set("logit_scale", 1.5F);
    keys.Set("attention.scale", 1.25F / std::sqrt(static_cast<float>(shape.head_dim)));
  }
  const bool needs_limits = family.has_pooled_attention;  // libllama's loader has no default
  if (shape.limit_expert > 0 || needs_limits) SetLimitKeys(keys, shape);
  if (family.blocks == BlockIndexers::kOfMeans) SetBlockKeys(keys, shape);
  if (family.blocks == BlockIndexers::kOfHeads) SetKeysOfHeads(keys, shape);
  if (family.has_pooled_attention) SetPooledKeys(keys, shape);
  if (family.has_token_experts) keys.Set("hash_layer_count", shape.token_layers);
  if (shape.ngram_most > 0) SetNgramKeys(keys, shape);
  if (family.streams) SetStreamKeys(keys, shape);
  if (family.has_encoder) SetEncoderKeys(keys, shape);
  if (family.written.has_moe_step_key) keys.Set("interleave_moe_layer_step", 1U);
  if (shape.window > 0) keys.Set("attention.sliding_window", shape.window);
  if (shape.groups > 0) {
    keys.Set("expert_group_count", shape.groups);
    keys.Set("expert_group_used_count", shape.groups_used);
  }
  keys.Set("vocab_size", shape.vocab);
}

void SetSparseKey(gguf_context* gguf) { gguf_set_val_bool(gguf, kSparseKey, true); }

void SetNoVocabulary(gguf_context* gguf) { gguf_set_val_str(gguf, "tokenizer.ggml.model", "none"); }

Result<Vocabulary> ReadVocabulary(const std::string& path) {
  TRY(std::unique_ptr<ByteSource> bytes, OpenFileBytes(path));
  TRY([[maybe_unused]] const GgufHeader accepted, ReadGgufHeader(std::move(bytes)));
  TRY(gguf_context_ptr keys,
      ReadKeys(path, [](std::string_view key) { return key.starts_with("tokenizer."); }));
  const int64_t tokens = gguf_find_key(keys.get(), "tokenizer.ggml.tokens");
  if (tokens < 0 || gguf_get_kv_type(keys.get(), tokens) != GGUF_TYPE_ARRAY) {
    return Fail(Errc::kInvalidFile, "{} holds no vocabulary (tokenizer.ggml.tokens)", path);
  }
  const auto size = static_cast<uint32_t>(gguf_get_arr_n(keys.get(), tokens));
  return Vocabulary{.keys = std::move(keys), .size = size};
}

void SetSplitKeys(gguf_context* gguf, const SplitPart& part) {
  if (part.count == 1) return;
  gguf_set_val_u16(gguf, "split.no", static_cast<uint16_t>(part.index));
  gguf_set_val_u16(gguf, "split.count", static_cast<uint16_t>(part.count));
  gguf_set_val_i32(gguf, "split.tensors.count", static_cast<int32_t>(part.all_tensors));
}

}  // namespace moestro
