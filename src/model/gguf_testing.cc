// SPDX-License-Identifier: MIT
#include "model/gguf_testing.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "model/expert_tensors.h"
#include "model/families/families.h"
#include "model/tensor_names.h"

namespace moestro {

GgufBuilder::GgufBuilder() : gguf_(gguf_init_empty()) {}
GgufBuilder::GgufBuilder(GgufBuilder&& other) noexcept
    : gguf_(std::exchange(other.gguf_, nullptr)), tensors_(std::move(other.tensors_)) {}
GgufBuilder::~GgufBuilder() {
  if (gguf_ != nullptr) gguf_free(gguf_);
}

GgufBuilder& GgufBuilder::Set(const std::string& key, uint32_t value) {
  gguf_set_val_u32(gguf_, key.c_str(), value);
  return *this;
}
GgufBuilder& GgufBuilder::Set(const std::string& key, float value) {
  gguf_set_val_f32(gguf_, key.c_str(), value);
  return *this;
}
GgufBuilder& GgufBuilder::Set(const std::string& key, bool value) {
  gguf_set_val_bool(gguf_, key.c_str(), value);
  return *this;
}
GgufBuilder& GgufBuilder::Set(const std::string& key, const char* value) {
  gguf_set_val_str(gguf_, key.c_str(), value);
  return *this;
}
GgufBuilder& GgufBuilder::SetStrings(const std::string& key,
                                     const std::vector<std::string>& values) {
  std::vector<const char*> texts;
  for (const std::string& value : values) texts.push_back(value.c_str());
  gguf_set_arr_str(gguf_, key.c_str(), texts.data(), texts.size());
  return *this;
}
GgufBuilder& GgufBuilder::SetFloats(const std::string& key, const std::vector<float>& values) {
  gguf_set_arr_data(gguf_, key.c_str(), GGUF_TYPE_FLOAT32, values.data(), values.size());
  return *this;
}
GgufBuilder& GgufBuilder::SetInts(const std::string& key, const std::vector<int32_t>& values) {
  gguf_set_arr_data(gguf_, key.c_str(), GGUF_TYPE_INT32, values.data(), values.size());
  return *this;
}
GgufBuilder& GgufBuilder::Remove(const std::string& key) {
  CHECK(gguf_remove_key(gguf_, key.c_str()) >= 0);
  return *this;
}

GgufBuilder& GgufBuilder::Tensor(const std::string& name, ggml_type type,
                                 const std::vector<int64_t>& ne) {
  const auto known = std::ranges::find(tensors_, name, &TensorDef::name);
  if (known != tensors_.end()) {
    *known = {.name = name, .type = type, .ne = ne};
  } else {
    tensors_.push_back({.name = name, .type = type, .ne = ne});
  }
  return *this;
}

GgufBuilder& GgufBuilder::RemoveTensor(const std::string& name) {
  CHECK(std::erase_if(tensors_, [&](const TensorDef& t) { return t.name == name; }) == 1);
  return *this;
}

void GgufBuilder::Write(const std::string& path) const {
  gguf_context* out = gguf_init_empty();
  gguf_set_kv(out, gguf_);
  ggml_context* ggml =
      ggml_init({.mem_size = size_t{16} << 20, .mem_buffer = nullptr, .no_alloc = false});
  for (const TensorDef& def : tensors_) {
    ggml_tensor* tensor =
        ggml_new_tensor(ggml, def.type, static_cast<int>(def.ne.size()), def.ne.data());
    ggml_set_name(tensor, def.name.c_str());
    char* data = static_cast<char*>(tensor->data);
    for (size_t i = 0; i < ggml_nbytes(tensor); ++i) data[i] = static_cast<char>(i % 31);
    gguf_add_tensor(out, tensor);
  }
  CHECK(gguf_write_to_file(out, path.c_str(), false));
  ggml_free(ggml);
  gguf_free(out);
}

namespace {

constexpr int64_t kEmbd = 32;
constexpr int64_t kVocab = 300;
constexpr int64_t kExperts = 4;
constexpr int64_t kFf = 64;
constexpr uint32_t kDenseFf = 96;  // beside experts
constexpr DeltaNetSpec kDelta{.n_head_k = 1, .n_head_v = 2, .head_dim = 32, .n_taps = 4};
constexpr DeltaNetSpec kKimi{
    .n_head_k = 4, .n_head_v = 4, .head_dim = 32, .n_taps = 4, .decays_values = true};
constexpr LatentAttentionSpec kLatent{.n_head = 4,
                                      .n_latent = 32,
                                      .n_turned = 8,
                                      .n_plain = 32,
                                      .head_dim_v = 16,
                                      .n_query_latent = 32};
constexpr IndexerSpec kIndexer{.n_head = 2, .head_dim = 32, .top_k = 16};
constexpr uint32_t kPoolSize = 4;
constexpr StreamsSpec kStreamsOfSmall{.n_streams = 4, .n_iterations = 20, .eps = 1e-6F};
constexpr Mamba2Spec kMamba{.n_head = 2, .head_dim = 32, .n_group = 2, .n_state = 16, .n_taps = 4};

constexpr StreamsSpec kLowRankOfSmall{
    .mixing = StreamMixing::kLowRank, .n_streams = 2, .n_low_rank = 32};
constexpr IndexerSpec kSmallBlocks{
    .n_head = 2, .head_dim = 16, .top_k = 16, .n_pool = 4, .score = PoolScore::kMeanKeys};
constexpr IndexerSpec kBlocksOfHeads{.n_head = 2,
                                     .head_dim = 16,
                                     .top_k = 16,
                                     .n_pool = 4,
                                     .n_last_pools = 1,
                                     .score = PoolScore::kBestPosition};

PooledAttentionSpec SmallPools(uint32_t n_pool, RopePairs pairs) {
  PooledAttentionSpec spec{.n_head = 4,
                           .head_dim = 32,
                           .n_query_latent = 32,
                           .window = 16,
                           .rope_pairs = pairs,
                           .rope = {.n_dims = 8},
                           .n_group = 2,
                           .n_out = 32,
                           .n_pool = n_pool,
                           .overlaps = n_pool == 4};
  if (spec.overlaps) spec.indexer = {.n_head = 2, .head_dim = 64, .top_k = 4};
  return spec;
}

void AddPoolKeys(GgufBuilder& file, const std::string& arch) {
  const PooledAttentionSpec spec = SmallPools(4, RopePairs::kAdjacent);
  file.Set(arch + ".attention.key_length", spec.head_dim)
      .Set(arch + ".attention.value_length", spec.head_dim)
      .Set(arch + ".attention.head_count_kv", 1U)
      .Set(arch + ".attention.q_lora_rank", spec.n_query_latent)
      .Set(arch + ".attention.sliding_window", spec.window)
      .Set(arch + ".attention.output_group_count", spec.n_group)
      .Set(arch + ".attention.output_lora_rank", spec.n_out)
      .SetInts(arch + ".attention.compress_ratios", {4, 128})
      .Set(arch + ".attention.compress_rope_freq_base", 9000.0F)
      .Set(arch + ".attention.indexer.head_count", spec.indexer->n_head)
      .Set(arch + ".attention.indexer.key_length", spec.indexer->head_dim)
      .Set(arch + ".attention.indexer.top_k", spec.indexer->top_k)
      .Set(arch + ".rope.dimension_count", spec.rope.n_dims)
      .Set(arch + ".hash_layer_count", 1U)
      .Set(arch + ".swiglu_clamp_exp", 10.0F);
}

NgramSpec SmallNgrams() {
  return {.n_most = 3,
          .heads_of_each = 1,
          .n_values = 16,
          .n_rows = 70,
          .n_taps = 4,
          .end = 5,
          .factors = {3, 5, 7},
          .heads = {{.first = 0, .count = 31}, {.first = 32, .count = 37}}};
}

void AddStreamKeys(GgufBuilder& file, const std::string& arch) {
  file.Set(arch + ".hyper_connection.count", kLowRankOfSmall.n_streams)
      .Set(arch + ".hyper_connection.low_rank", kLowRankOfSmall.n_low_rank);
}

void AddBlockKeys(GgufBuilder& file, const std::string& arch) {
  file.Set(arch + ".attention.indexer.head_count", kSmallBlocks.n_head)
      .Set(arch + ".attention.indexer.key_length", kSmallBlocks.head_dim)
      .Set(arch + ".attention.indexer.top_k", kSmallBlocks.top_k)
      .SetInts(arch + ".attention.compress_ratios", {0, 4});
}

void AddKeysOfHeads(GgufBuilder& file, const std::string& arch) {
  file.Set(arch + ".attention.indexer.head_count", kBlocksOfHeads.n_head)
      .Set(arch + ".attention.indexer.key_length", kBlocksOfHeads.head_dim)
      .Set(arch + ".attention.indexer.top_k", kBlocksOfHeads.top_k / kBlocksOfHeads.n_pool)
      .Set(arch + ".attention.indexer.block_size", kBlocksOfHeads.n_pool)
      .Set(arch + ".attention.indexer.local_blocks", kBlocksOfHeads.n_last_pools);
}

void AddNgramKeys(GgufBuilder& file, const std::string& arch) {
  const NgramSpec ngrams = SmallNgrams();
  file.SetInts(arch + ".ple.layers", {0})
      .Set(arch + ".ple.ngram_size", ngrams.n_most)
      .Set(arch + ".ple.heads_per_ngram", ngrams.heads_of_each)
      .Set(arch + ".ple.conv_kernel", ngrams.n_taps)
      .Set(arch + ".ple.eos_token_id", uint32_t{5})
      .SetInts(arch + ".ple.layer_multipliers", {3, 5, 7})
      .SetInts(arch + ".ple.head_offsets", {0, 32})
      .SetInts(arch + ".ple.head_vocab_sizes", {31, 37})
      .Set(arch + ".embedding_length_per_layer_input", ngrams.n_values);
}

void AddKeys(GgufBuilder& file, const std::string& arch) {
  file.Set("general.architecture", arch.c_str())
      .Set("general.name", "small")
      .Set(arch + ".block_count", 2U)
      .Set(arch + ".context_length", 128U)
      .Set(arch + ".embedding_length", uint32_t{kEmbd})
      .Set(arch + ".feed_forward_length", uint32_t{kFf})
      .Set(arch + ".attention.head_count", 4U)
      .Set(arch + ".attention.head_count_kv", 2U)
      .Set(arch + ".attention.layer_norm_rms_epsilon", 1e-6F)
      .Set(arch + ".rope.freq_base", 5000.0F)
      .Set(arch + ".expert_count", uint32_t{kExperts})
      .Set(arch + ".expert_used_count", 2U)
      .Set(arch + ".vocab_size", uint32_t{kVocab})
      .Set("tokenizer.ggml.model", "none");
}

// The sizes of roles. Where a family has layers with a state, the first is one; where a layer is a
// mixer or experts alone, the third has the experts.
ModelSpec SizesOf(const Family& family, uint32_t head_dim) {
  ModelSpec spec;
  spec.n_embd = kEmbd;
  spec.n_vocab = kVocab;
  const FeedForwardSpec feed_forward{
      .n_ff_expert = kFf,
      .n_ff_shared = family.shared_expert == SharedExpertKind::kNone       ? 0
                     : family.shared_expert == SharedExpertKind::kOwnWidth ? 96
                                                                           : uint32_t{2 * kFf},
      .n_ff_dense = family.has_dense_beside ? kDenseFf : 0};
  const OutputGate gate = family.attention.output_gate;
  const AttentionSpec attention{.form = family.attention,
                                .n_head = 4,
                                .n_head_kv = 2,
                                .head_dim_k = head_dim,
                                .head_dim_v = head_dim,
                                .rope = RopeSpec{.n_dims = head_dim},
                                .n_gate = gate == OutputGate::kSigmoid    ? 4 * head_dim
                                          : gate == OutputGate::kSoftplus ? 4
                                                                          : 0};
  spec.layers.assign(2, {.mixer = attention, .feed_forward = feed_forward});
  if (family.windows.has_own_heads) {  // in the first layer
    AttentionSpec& windowed = std::get<AttentionSpec>(spec.layers[0].mixer);
    windowed.head_dim_k = windowed.head_dim_v = head_dim / 2;
    windowed.has_rope_factors = false;
  }
  if (family.latent.is_used) {
    LatentAttentionSpec latent = kLatent;
    latent.has_gates = family.latent.has_gates;
    if (family.latent.indexers != Indexers::kNone) latent.indexer = kIndexer;
    if (family.latent.indexers == Indexers::kPools) latent.indexer->n_pool = kPoolSize;
    if (!family.latent.has_turned) latent.n_plain += std::exchange(latent.n_turned, 0);
    for (LayerSpec& layer : spec.layers) layer.mixer = latent;
  }
  if (family.has_pooled_attention) {
    spec.layers[0].mixer = SmallPools(4, family.attention.rope_pairs);
    spec.layers[1].mixer = SmallPools(128, family.attention.rope_pairs);
  }
  if (family.has_token_experts) spec.layers[0].feed_forward.has_token_experts = true;
  if (family.states.mixer == StateMixer::kDeltaNet) {
    DeltaNetSpec delta = kDelta;
    delta.has_sigmoid_gates = family.states.has_sigmoid_gates;
    spec.layers[0].mixer = delta;
  }
  if (family.blocks == BlockIndexers::kOfMeans) {
    std::get<AttentionSpec>(spec.layers[1].mixer).indexer = kSmallBlocks;
  }
  if (family.blocks == BlockIndexers::kOfHeads) {
    for (LayerSpec& layer : spec.layers) {
      std::get<AttentionSpec>(layer.mixer).indexer = kBlocksOfHeads;
    }
  }
  if (family.states.mixer == StateMixer::kKimiDelta) {
    DeltaNetSpec delta = kKimi;
    delta.has_whole_gates = family.states.has_whole_gates;
    spec.layers[0].mixer = delta;
  }
  if (family.states.mixer == StateMixer::kMamba2) spec.layers[0].mixer = kMamba;
  if (family.states.mixer == StateMixer::kShortConv) {
    spec.layers[0].mixer = ShortConvSpec{.n_channels = kEmbd, .n_taps = 3};
  }
  if (family.has_lone_parts) {
    for (LayerSpec& layer : spec.layers) layer.feed_forward = {};
    spec.layers.push_back({.mixer = NoMixerSpec(), .feed_forward = feed_forward});
  }
  if (family.has_latent_experts) spec.layers.back().feed_forward.n_latent = kEmbd;
  if (family.streams) {
    spec.streams = family.streams == StreamMixing::kLowRank ? kLowRankOfSmall : kStreamsOfSmall;
  }
  if (family.has_ngrams) {
    spec.ngrams = SmallNgrams();
    spec.layers[0].ngram_values = spec.ngrams->n_history() * spec.n_residual();
  }
  spec.experts = family.experts;
  spec.router.n_expert = kExperts;
  spec.router.n_used = 2;
  return spec;
}

void AddStateKeys(GgufBuilder& file, const std::string& arch, const StateRules& rules) {
  if (rules.layers == StateLayers::kByInterval) {
    file.Set(arch + ".full_attention_interval", 2U);
  } else {
    file.SetInts(arch + ".attention.head_count_kv", {0, 2});
  }
  if (rules.mixer == StateMixer::kShortConv) {
    file.Set(arch + ".shortconv.l_cache", 3U);
    return;
  }
  if (rules.mixer == StateMixer::kKimiDelta) {
    file.Set(arch + ".ssm.conv_kernel", kKimi.n_taps).Set(arch + ".kda.head_dim", kKimi.head_dim);
    if (rules.has_decay_bound) file.Set(arch + ".kda.gate_lower_bound", -5.0F);
    return;
  }
  if (rules.mixer == StateMixer::kMamba2) {
    file.Set(arch + ".ssm.conv_kernel", kMamba.n_taps)
        .Set(arch + ".ssm.group_count", kMamba.n_group)
        .Set(arch + ".ssm.inner_size", kMamba.n_inner())
        .Set(arch + ".ssm.state_size", kMamba.n_state)
        .Set(arch + ".ssm.time_step_rank", kMamba.n_head);
    return;
  }
  file.Set(arch + ".ssm.conv_kernel", kDelta.n_taps)
      .Set(arch + ".ssm.group_count", kDelta.n_head_k)
      .Set(arch + ".ssm.inner_size", kDelta.n_values())
      .Set(arch + ".ssm.state_size", kDelta.head_dim)
      .Set(arch + ".ssm.time_step_rank", kDelta.n_head_v);
}

void AddLatentKeys(GgufBuilder& file, const std::string& arch, const LatentRules& rules) {
  if (rules.indexers != Indexers::kNone) {
    file.Set(arch + ".attention.indexer.head_count", kIndexer.n_head)
        .Set(arch + ".attention.indexer.key_length", kIndexer.head_dim)
        .Set(arch + ".attention.indexer.top_k", kIndexer.top_k);
    if (rules.indexers == Indexers::kPools) {
      file.Set(arch + ".attention.indexer.kpool", kPoolSize);
    }
  }
  file.Set(arch + ".attention.key_length_mla", kLatent.n_plain + kLatent.n_turned)
      .Set(arch + ".attention.value_length_mla", kLatent.head_dim_v)
      .Set(arch + ".attention.kv_lora_rank", kLatent.n_latent)
      .Set(arch + ".attention.q_lora_rank", kLatent.n_query_latent)
      .Set(arch + ".rope.dimension_count", rules.has_turned ? kLatent.n_turned : 0U);
}

// Where a role's type matters to a test; others are F16 or, if vectors, F32.
ggml_type TypeOf(const TensorRole& role) {
  if (role.kind == TensorKind::kNumbers) return GGML_TYPE_I32;
  if (role.kind == TensorKind::kVector || role.name == "ffn_gate_inp.weight") return GGML_TYPE_F32;
  const bool is_table = role.name == "token_embd.weight" || role.name == "output.weight";
  return is_table ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
}

void AddRole(GgufBuilder& file, const std::string& blk, const TensorRole& role,
             const ModelSpec& spec, const LayerSpec* layer) {
  std::vector<int64_t> ne{DimSize(role.ne0, spec, layer)};
  if (role.ne1 != Dim::kOne || role.ne2 != Dim::kOne) {
    ne.push_back(DimSize(role.ne1, spec, layer));
  }
  if (role.ne2 != Dim::kOne) ne.push_back(DimSize(role.ne2, spec, layer));
  file.Tensor(blk + std::string(role.name), TypeOf(role), ne);
}

// Adds the tensors that stock files of the family have.
void AddTensors(GgufBuilder& file, const Family& family, const ModelSpec& spec) {
  const auto is_there = [](Presence presence) {
    return presence == Presence::kRequired || presence == Presence::kUsual;
  };
  const auto add_model = [&](const TensorRole& role, Presence presence) {
    if (is_there(presence)) AddRole(file, "", role, spec, &spec.layers.back());
  };
  ForEachModelRole(add_model, family.model_tensors);
  for (uint32_t l = 0; l < spec.n_layer(); ++l) {
    const std::string blk = LayerTensorName(l, "");
    const LayerSpec& layer = spec.layers[l];
    const auto add = [&](const TensorRole& role, Presence presence) {
      if (is_there(presence) && HasPart(layer, role.part)) AddRole(file, blk, role, spec, &layer);
    };
    ForEachLayerRole(add, family.layer_tensors);
    if (!layer.feed_forward.has_experts()) continue;
    if (HasGate(spec.experts.activation)) {
      file.Tensor(blk + "ffn_gate_exps.weight", GGML_TYPE_Q8_0, {kEmbd, kFf, kExperts});
    }
    file.Tensor(blk + "ffn_up_exps.weight", GGML_TYPE_Q4_0, {kEmbd, kFf, kExperts})
        .Tensor(blk + "ffn_down_exps.weight", GGML_TYPE_F16, {kFf, kEmbd, kExperts});
  }
}

// GPT-2's printable stand-in for each byte, as UTF-8.
std::string ByteSpelling(unsigned byte) {
  const auto prints = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  unsigned code = byte;
  if (!prints(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += prints(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

GgufBuilder SmallMoe(std::string_view arch) {
  const Family* family = FindFamily(Families(), arch);
  CHECK(family != nullptr);
  const std::string name(arch);
  GgufBuilder file;
  AddKeys(file, name);
  const bool has_wide_heads = family->written.has_head_length_keys;
  if (has_wide_heads) {  // no quotient
    file.Set(name + ".attention.key_length", 16U).Set(name + ".attention.value_length", 16U);
  }
  if (family->feed_forward_length == FeedForwardLength::kUsedExperts && !has_wide_heads) {
    // feed_forward_length sets the width of an expert
    file.Set(name + ".feed_forward_length", 2 * uint32_t{kFf});
  } else if (family->feed_forward_length != FeedForwardLength::kOneExpert) {
    file.Set(name + ".expert_feed_forward_length", uint32_t{kFf})
        .Set(name + ".feed_forward_length", 999U);
  }
  if (family->shared_expert == SharedExpertKind::kOwnWidth) {
    file.Set(name + ".expert_shared_feed_forward_length", 96U);
  }
  if (family->shared_expert == SharedExpertKind::kOptional ||
      family->shared_expert == SharedExpertKind::kLikeExpert) {
    file.Set(name + ".expert_shared_feed_forward_length", 2 * uint32_t{kFf});
  }
  if (family->router.gating_key == Presence::kRequired) {
    file.Set(name + ".expert_gating_func", static_cast<uint32_t>(family->router.gating) + 1);
  }
  if (family->states.mixer != StateMixer::kNone) AddStateKeys(file, name, family->states);
  if (family->latent.is_used) AddLatentKeys(file, name, family->latent);
  if (family->has_lone_parts) {
    file.Set(name + ".block_count", 3U)
        .SetInts(name + ".feed_forward_length", {0, 0, kFf})
        .SetInts(name + ".attention.head_count_kv", {0, 2, 0});
  }
  if (family->streams == StreamMixing::kLowRank) AddStreamKeys(file, name);
  if (family->streams == StreamMixing::kSinkhorn) {
    file.Set(name + ".hyper_connection.count", kStreamsOfSmall.n_streams)
        .Set(name + ".hyper_connection.sinkhorn_iterations", kStreamsOfSmall.n_iterations)
        .Set(name + ".hyper_connection.epsilon", kStreamsOfSmall.eps);
  }
  if (family->has_latent_experts) file.Set(name + ".moe_latent_size", uint32_t{kEmbd});
  if (family->blocks == BlockIndexers::kOfMeans) AddBlockKeys(file, name);
  if (family->blocks == BlockIndexers::kOfHeads) AddKeysOfHeads(file, name);
  if (family->has_pooled_attention) AddPoolKeys(file, name);
  if (family->has_ngrams) AddNgramKeys(file, name);
  if (family->written.has_rope_sections) {
    file.SetInts(name + ".rope.dimension_sections", {3, 3, 2, 0});
  }
  if (family->windows.period > 0) file.Set(name + ".attention.sliding_window", 16U);
  if (family->windows.has_own_heads) {
    file.SetInts(name + ".attention.sliding_window_pattern", {1, 0})
        .Set(name + ".attention.key_length_swa", 8U)
        .Set(name + ".attention.value_length_swa", 8U);
  }
  if (family->has_dense_beside) file.Set(name + ".feed_forward_length", kDenseFf);
  if (family->shared_expert == SharedExpertKind::kCounted)
    file.Set(name + ".expert_shared_count", 2U);
  AddTensors(file, *family, SizesOf(*family, has_wide_heads ? 16 : 8));
  return file;
}

GgufBuilder SmallFitted() {
  GgufBuilder file = SmallMoe("olmoe");
  file.Set(kFitVersionKey, kFitVersion)
      .Set(kFitNameKey, "source.gguf")
      .Set(kFitFingerprintKey, "0123456789abcdef")
      .Set(kFitWidthKey, "01100000");
  for (const std::string matrix : {"gate", "up"}) {
    const std::string name = "blk.0.ffn_" + matrix + "_exps";
    file.Tensor(name + ".weight", GGML_TYPE_Q8_0, {32, 64, 2});
    file.Tensor(name + "_low.weight", GGML_TYPE_Q4_0, {32, 64, 2});
  }
  file.Tensor("blk.0.ffn_down_exps.weight", GGML_TYPE_Q8_0, {64, 32, 2});
  file.Tensor("blk.0.ffn_down_exps_low.weight", GGML_TYPE_Q4_0, {64, 32, 2});
  return file;
}

void AddByteLevelVocabulary(GgufBuilder& file) {
  std::vector<std::string> tokens{"<s>", "</s>"};
  for (unsigned byte = 0; byte < 256; ++byte) tokens.push_back(ByteSpelling(byte));
  const std::vector<std::string> merges{"h e", "l l", "he ll", "hell o"};
  for (const char* word : {"he", "ll", "hell", "hello"}) tokens.emplace_back(word);
  while (tokens.size() < static_cast<size_t>(kVocab))
    tokens.push_back(Format("<unused{}>", tokens.size()));
  std::vector<int32_t> types(tokens.size(), 1);  // normal
  types[0] = types[1] = 3;                       // control
  file.Set("tokenizer.ggml.model", "gpt2")
      .Set("tokenizer.ggml.pre", "gpt-2")
      .SetStrings("tokenizer.ggml.tokens", tokens)
      .SetInts("tokenizer.ggml.token_type", types)
      .SetStrings("tokenizer.ggml.merges", merges)
      .Set("tokenizer.ggml.bos_token_id", 0U)
      .Set("tokenizer.ggml.eos_token_id", 1U)
      .Set("tokenizer.ggml.add_bos_token", true)
      .Set("tokenizer.chat_template",
           "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor "
           "%}");
}

void AddBertVocabulary(GgufBuilder& file) {
  std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
  std::vector<int32_t> types{3, 2, 3, 3};
  const std::string begins = "\xE2\x96\x81";
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    tokens.push_back(begins + letter);
    tokens.emplace_back(1, letter);
  }
  for (const char* other : {"hello", ",", "."}) tokens.push_back(begins + other);
  types.resize(tokens.size(), 1);
  file.Set("tokenizer.ggml.model", "bert")
      .SetStrings("tokenizer.ggml.tokens", tokens)
      .SetInts("tokenizer.ggml.token_type", types)
      .Set("tokenizer.ggml.token_type_count", 2U)
      .Set("tokenizer.ggml.padding_token_id", 0U)
      .Set("tokenizer.ggml.unknown_token_id", 1U)
      .Set("tokenizer.ggml.bos_token_id", 2U)
      .Set("tokenizer.ggml.cls_token_id", 2U)
      .Set("tokenizer.ggml.seperator_token_id", 3U);
}

RawHeader::RawHeader(uint64_t n_tensors, uint64_t n_keys, uint32_t version) : bytes_("GGUF") {
  Number(version).Number(n_tensors).Number(n_keys);
}

RawHeader& RawHeader::Text(std::string_view text) {
  Number(uint64_t{text.size()});
  bytes_ += text;
  return *this;
}

RawHeader& RawHeader::Tensor(std::string_view name, const std::vector<int64_t>& ne, uint32_t type,
                             uint64_t offset) {
  Text(name).Number(static_cast<uint32_t>(ne.size()));
  for (const int64_t n : ne) Number(n);
  return Number(type).Number(offset);
}

RawHeader& RawHeader::Zeros(uint64_t count) {
  bytes_.append(count, '\0');
  return *this;
}

void WriteBytes(const std::string& path, std::string_view bytes) {
  std::error_code ignored;                 // a name of a descriptor stays
  std::filesystem::remove(path, ignored);  // ext4 waits for the disk where a file is written anew
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  CHECK(file.good());
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  std::string bytes(static_cast<size_t>(file.tellg()), '\0');
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

}  // namespace moestro
