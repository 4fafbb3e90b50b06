// SPDX-License-Identifier: MIT
#include "tests/support/llama_zoo_testing.h"

#include <ggml-backend.h>
#include <gguf.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "compute/backends.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr int32_t kLayers = 4;

// A key of one architecture that differs from the usual value, or that it alone has.
struct Key {
  std::string_view name;
  // One value is a number, several an array of integers.
  std::vector<int32_t> values;
  enum class Kind : uint8_t {
    kUint,
    kFloat,
    kBool,
    kIntArray,
    kFloatArray,
    kBoolArray
  } kind = Kind::kUint;
};

const std::vector<Key> kLatent = {{"attention.head_count_kv", {1}},
                                  {"attention.key_length", {80}},
                                  {"attention.value_length", {64}},
                                  {"rope.dimension_count", {16}}};
const std::vector<Key> kWindows = {
    {"attention.sliding_window_pattern", {1, 0, 1, 0}, Key::Kind::kBoolArray}};
const std::vector<Key> kIndexed = {
    {"attention.head_count_kv", {1}},      {"attention.key_length", {80}},
    {"attention.value_length", {64}},      {"rope.dimension_count", {16}},
    {"attention.indexer.head_count", {8}}, {"attention.indexer.key_length", {64}}};
// Delta nets by channels in even layers, latents in odd ones.
const std::vector<Key> kDeltaAndLatent = {
    {"attention.head_count_kv", {0, 1, 0, 1}, Key::Kind::kIntArray},
    {"attention.key_length", {80}},
    {"attention.value_length", {64}},
    {"rope.dimension_count", {16}},
    {"kda.gate_lower_bound", {-5}, Key::Kind::kFloat},
    {"kda.safe_gate", {1}, Key::Kind::kBool}};
// Gates of experts are cut off beyond so much, in layers of both kinds.
const Key kClamps = {"swiglu_clamp_exp", {0, 0, 7, 7}, Key::Kind::kFloatArray};
const std::vector<Key> kEverySecond = {
    {"ssm.inner_size", {256}}, {"attention.head_count_kv", {0, 2, 0, 2}, Key::Kind::kIntArray}};

std::vector<Key> Joined(std::vector<Key> some, const std::vector<Key>& others) {
  some.append_range(others);
  return some;
}

struct Arch {
  std::string_view name;
  std::vector<Key> keys = {};
};

// NOLINTNEXTLINE(readability-function-size): a table, a row after the other.
const std::vector<Arch>& Archs() {
  static const std::vector<Arch> archs = {
      {"afmoe"},
      {"arctic"},
      {"bailingmoe"},
      {"bailingmoe2"},
      {"bailingmoe3",
       Joined(kDeltaAndLatent, {{"expert_group_count", {1}}, {"expert_group_used_count", {1}}})},
      {"cohere2moe"},
      {"dbrx"},
      {"deepseek"},
      {"deepseek2", kLatent},
      {"deepseek32", kIndexed},
      {"deepseek4",
       {{"attention.head_count_kv", {1}},
        {"attention.key_length", {96}},
        {"attention.value_length", {96}},
        {"rope.dimension_count", {16}},
        {"attention.output_group_count", {2}},
        {"attention.output_lora_rank", {32}},
        {"attention.compress_ratios", {0, 4, 128, 4}, Key::Kind::kIntArray},
        {"attention.compress_rope_freq_base", {160'000}, Key::Kind::kFloat},
        {"attention.indexer.head_count", {8}},
        {"attention.indexer.key_length", {64}},
        {"attention.indexer.top_k", {8}},
        {"hyper_connection.count", {4}},
        {"hyper_connection.sinkhorn_iterations", {4}},
        {"expert_gating_func", {4}},
        {"hash_layer_count", {1}},
        kClamps}},
      {"dots1", {{"attention.head_count_kv", {4}}}},
      {"ernie4_5-moe"},
      {"exaone-moe"},
      {"gemma4", kWindows},
      {"glm-dsa", kIndexed},
      {"glm4moe"},
      {"glm5-next",
       {{"attention.head_count_kv", {0, 1, 0, 1}, Key::Kind::kIntArray},
        {"attention.key_length", {64}},
        {"attention.value_length", {64}},
        {"rope.dimension_count", {0}},
        {"kda.gate_lower_bound", {-5}, Key::Kind::kFloat},
        {"attention.indexer.head_count", {8}},
        {"attention.indexer.kpool", {4}},
        {"attention.indexer.kpool_select_tail", {1}, Key::Kind::kBool},
        {"attention.indexer.types", {1, 1, 1, 0}, Key::Kind::kIntArray},
        {"hyper_connection.count", {4}},
        {"hyper_connection.sinkhorn_iterations", {4}},
        kClamps}},
      {"gpt-oss"},
      {"granitehybrid", kEverySecond},
      {"granitemoe"},
      {"grok"},
      {"grovemoe"},
      {"hunyuan-moe"},
      {"hy_v3"},
      {"hy_v4", Joined(kIndexed, {{"attention.indexer.types", {1, 0, 1, 1}, Key::Kind::kIntArray},
                                  {"hyper_connection.magnitude", {2}, Key::Kind::kFloat},
                                  kClamps})},
      {"jamba", kEverySecond},
      {"k2-horizon"},
      {"kimi-k3", Joined(kDeltaAndLatent, {{"attn_res.block_size", {2}},
                                           {"activation.situ_beta", {4}, Key::Kind::kFloat},
                                           {"activation.situ_linear_beta", {25}, Key::Kind::kFloat},
                                           {"expert_latent_length", {64}}})},
      {"kimi-linear",
       {{"attention.head_count_kv", {0, 1, 0, 1}, Key::Kind::kIntArray},
        {"attention.key_length", {80}},
        {"attention.value_length", {64}},
        {"rope.dimension_count", {16}}}},
      {"laguna"},
      {"lfm2moe", {{"attention.head_count_kv", {0, 2, 0, 2}, Key::Kind::kIntArray}}},
      {"llama"},
      {"llama4"},
      {"maion-coder", {{"attention.sliding_window_pattern", {2, 2, 2, 2}, Key::Kind::kIntArray}}},
      {"mellum"},
      {"mimo2", kWindows},
      {"minimax-01"},
      {"minimax-m2"},
      {"minimax-m3",
       {{"attention.indexer.block_size", {32}}, {"attention.indexer.local_blocks", {2}}}},
      {"mistral4", kLatent},
      {"nemotron_h_moe",
       {{"attention.head_count_kv", {0, 2, 0, 0}, Key::Kind::kIntArray},
        {"feed_forward_length", {0, 0, 64, 64}, Key::Kind::kIntArray}}},
      {"olmoe", {{"attention.head_count_kv", {4}}}},
      {"phimoe"},
      {"qwen2moe"},
      {"qwen3moe"},
      {"qwen3next"},
      {"qwen3vlmoe"},
      {"qwen35moe"},
      {"qwen4exp", {{"hyper_connection.low_rank", {16}}}},
      {"smallthinker"},
      {"step35", Joined(kWindows, {{"attention.head_count", {4, 2, 4, 2}, Key::Kind::kIntArray},
                                   {"attention.head_count_kv", {2, 2, 2, 1}, Key::Kind::kIntArray},
                                   {"swiglu_clamp_shexp", {0, 0, 0, 16}, Key::Kind::kFloatArray},
                                   kClamps})},
  };
  return archs;
}

// Whether the tests write the file: llama_model_save_to_file() leaves out keys of some of these,
// and ends the process on others. It writes the others' files, without keys that they do not have.
bool IsWrittenByUs(std::string_view arch) {
  constexpr std::string_view kOurs[] = {
      "bailingmoe3", "deepseek32", "deepseek4", "gemma4", "glm-dsa",    "glm5-next",
      "hy_v4",       "kimi-k3",    "step35",    "bert",   "nomic-bert", "nomic-bert-moe"};
  return std::ranges::contains(kOurs, arch);
}

class Metadata {
 public:
  Metadata(std::string arch, const ZooSize& size)
      : arch_(std::move(arch)), gguf_(gguf_init_empty()) {
    gguf_set_val_str(gguf_.get(), "general.architecture", arch_.c_str());
    SetUints(size);
    SetVocab(size.vocab_path);
    SetFloats();
    Set({"rope.dimension_sections", {8, 4, 4, 0}, Key::Kind::kIntArray});
    gguf_set_val_bool(gguf_.get(), KeyOf("expert_weights_norm").c_str(), true);
    gguf_set_val_bool(gguf_.get(), KeyOf("attention.causal").c_str(), size.is_causal);
    if (size.pooling > 0) {
      gguf_set_val_u32(gguf_.get(), KeyOf("pooling_type").c_str(), size.pooling);
      gguf_set_val_u32(gguf_.get(), "tokenizer.ggml.token_type_count", 2);
    }
  }
  void Set(const Key& key) {
    const std::string name = KeyOf(key.name);
    switch (key.kind) {
      case Key::Kind::kUint:
        gguf_set_val_u32(gguf_.get(), name.c_str(), static_cast<uint32_t>(key.values.front()));
        return;
      case Key::Kind::kFloat:
        gguf_set_val_f32(gguf_.get(), name.c_str(), static_cast<float>(key.values.front()));
        return;
      case Key::Kind::kBool:
        gguf_set_val_bool(gguf_.get(), name.c_str(), key.values.front() != 0);
        return;
      case Key::Kind::kFloatArray: {
        const std::vector<float> floats(key.values.begin(), key.values.end());
        gguf_set_arr_data(gguf_.get(), name.c_str(), GGUF_TYPE_FLOAT32, floats.data(),
                          floats.size());
        return;
      }
      case Key::Kind::kIntArray:
        gguf_set_arr_data(gguf_.get(), name.c_str(), GGUF_TYPE_INT32, key.values.data(),
                          key.values.size());
        return;
      case Key::Kind::kBoolArray: {
        const std::vector<int8_t> flags(key.values.begin(), key.values.end());
        gguf_set_arr_data(gguf_.get(), name.c_str(), GGUF_TYPE_BOOL, flags.data(), flags.size());
        return;
      }
    }
  }
  gguf_context* get() const { return gguf_.get(); }

 private:
  struct Free {
    void operator()(gguf_context* gguf) const { gguf_free(gguf); }
  };
  std::string KeyOf(std::string_view name) const { return Format("{}.{}", arch_, name); }
  void SetUints(const ZooSize& size) const;
  void SetFloats() const;
  void SetVocab(const std::string& path) const;

  std::string arch_;
  std::unique_ptr<gguf_context, Free> gguf_;
};

void Metadata::SetUints(const ZooSize& size) const {
  const std::pair<const char*, uint32_t> uints[] = {
      {"vocab_size", 256},
      {"context_length", size.context},
      {"embedding_length", 128},
      {"block_count", kLayers},
      {"feed_forward_length", 160},
      {"expert_feed_forward_length", size.expert_ff},
      {"expert_shared_feed_forward_length", 96},
      {"expert_count", size.experts},
      {"expert_used_count", 2},
      {"expert_shared_count", 1},
      {"expert_gating_func", 2},
      {"leading_dense_block_count", 1},
      {"attention.head_count", 4},
      {"attention.head_count_kv", 2},
      {"attention.key_length", 32},
      {"attention.value_length", 32},
      {"rope.dimension_count", 32},
      {"attention.sliding_window", 32},
      {"ssm.conv_kernel", 4},
      {"ssm.state_size", 32},
      {"ssm.group_count", 2},
      {"ssm.time_step_rank", 4},
      {"ssm.inner_size", 128},
      {"full_attention_interval", 2},
      {"attention.q_lora_rank", 64},
      {"attention.kv_lora_rank", 64},
      {"attention.key_length_mla", 48},
      {"attention.value_length_mla", 32},
      {"interleave_moe_layer_step", 1},
      {"attention.chunk_size", 64},
      {"shortconv.l_cache", size.taps},
      {"nextn_predict_layers", 0},
      {"moe_every_n_layers", 1},
      {"moe_latent_size", 64},
      {"expert_chunk_feed_forward_length", 32},
      {"experts_per_group", 2},
      {"attention.indexer.head_count", 2},
      {"attention.indexer.key_length", 32},
      {"attention.indexer.top_k", 64},
      {"attention.key_length_swa", 32},
      {"attention.value_length_swa", 32},
      {"rope.dimension_count_swa", 32},
      {"attention.shared_kv_layers", 0},
      {"embedding_length_per_layer_input", 16},
      {"kda.head_dim", 32},
      {"hyper_connection.count", 2},
  };
  for (const auto& [name, value] : uints) {
    gguf_set_val_u32(gguf_.get(), KeyOf(name).c_str(), value);
  }
}

// All keys of the other file, then without those that are not its tokenizer's.
void Metadata::SetVocab(const std::string& path) const {
  if (path.empty()) {
    gguf_set_val_str(gguf_.get(), "tokenizer.ggml.model", "none");
    return;
  }
  const std::unique_ptr<gguf_context, Free> from(
      gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  CHECK(from != nullptr);
  for (int64_t i = gguf_get_n_kv(from.get()) - 1; i >= 0; --i) {
    const std::string key = gguf_get_key(from.get(), i);
    if (!key.starts_with("tokenizer.")) gguf_remove_key(from.get(), key.c_str());
  }
  gguf_set_kv(gguf_.get(), from.get());
  const int64_t tokens = gguf_find_key(from.get(), "tokenizer.ggml.tokens");
  CHECK(tokens >= 0);
  gguf_set_val_u32(gguf_.get(), KeyOf("vocab_size").c_str(),
                   static_cast<uint32_t>(gguf_get_arr_n(from.get(), tokens)));
}

void Metadata::SetFloats() const {
  const std::pair<const char*, float> floats[] = {
      {"expert_weights_scale", 1.5F},
      {"attention.layer_norm_rms_epsilon", 1e-5F},
      {"attention.layer_norm_epsilon", 1e-5F},
      {"rope.freq_base", 10000.0F},
      {"rope.freq_base_swa", 10000.0F},
      {"logit_scale", 1.0F},
      {"residual_scale", 1.0F},
      {"embedding_scale", 1.0F},
      {"attention.scale", 0.17F},
      {"expert_group_scale", 0.5F},
      {"hyper_connection.epsilon", 1e-6F},
      {"router_logit_softcapping", 30.0F},
      {"attn_logit_softcapping", 50.0F},
      {"final_logit_softcapping", 30.0F},
      {"attention.output_scale", 1.0F},
      {"attention.clamp_kqv", 8.0F},
  };
  for (const auto& [name, value] : floats) {
    gguf_set_val_f32(gguf_.get(), KeyOf(name).c_str(), value);
  }
}

// Weights of the tensors that libllama makes for a model.
class Weights {
 public:
  // For llama_model_init_from_user(); `weights` is a Weights.
  static void Fill(ggml_tensor* tensor, void* weights) {
    static_cast<Weights*>(weights)->Add(*tensor);
  }
  // Writes the model's file.
  void Write(gguf_context* metadata, const std::string& path);

 private:
  struct Made {
    ggml_type type = GGML_TYPE_F32;
    std::array<int64_t, GGML_MAX_DIMS> ne{};
    std::vector<std::byte> bytes = {};
  };
  void Add(ggml_tensor& tensor);
  std::vector<std::byte> ValuesFor(const ggml_tensor& tensor);

  std::minstd_rand random_{7};
  std::map<std::string, Made> made_;  // layers may share a tensor
};

template <class Value>
std::vector<std::byte> BytesOf(const std::vector<Value>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Norms and scales about 1, decays below 0, the rest about 0.
std::vector<std::byte> Weights::ValuesFor(const ggml_tensor& tensor) {
  const std::string_view name = tensor.name;
  const auto n = static_cast<size_t>(ggml_nelements(&tensor));
  if (tensor.type == GGML_TYPE_I32) {
    std::vector<int32_t> numbers(n);
    for (size_t i = 0; i < n; ++i) numbers[i] = static_cast<int32_t>(i * 7 % 8);
    return BytesOf(numbers);
  }
  std::uniform_real_distribution<float> usual(-0.125F, 0.125F);
  std::vector<float> values(n);
  for (float& value : values) {
    value = usual(random_);
    if (name.contains("norm") || name.ends_with("scale")) value = 1.0F + 0.4F * value;
    if (name.contains("ssm_a")) value = -0.5F - std::abs(value);
  }
  if (tensor.type == GGML_TYPE_F16) {
    std::vector<ggml_fp16_t> halves(n);
    ggml_fp32_to_fp16_row(values.data(), halves.data(), static_cast<int64_t>(n));
    return BytesOf(halves);
  }
  CHECK(tensor.type == GGML_TYPE_F32);
  return BytesOf(values);
}

void Weights::Add(ggml_tensor& tensor) {
  Made made{.type = tensor.type, .bytes = ValuesFor(tensor)};
  std::ranges::copy(tensor.ne, made.ne.begin());
  ggml_backend_tensor_set(&tensor, made.bytes.data(), 0, made.bytes.size());
  made_.try_emplace(tensor.name, std::move(made));
}

// A table of chosen experts is of whole numbers; libllama makes floats of it.
bool IsTableOfExperts(const std::string& name) { return name.contains("tid2eid"); }

void Weights::Write(gguf_context* metadata, const std::string& path) {
  struct Free {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  const std::unique_ptr<ggml_context, Free> context(
      ggml_init({.mem_size = (made_.size() + 1) * ggml_tensor_overhead(),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
  CHECK(context != nullptr);
  for (auto& [name, made] : made_) {
    ggml_tensor* const tensor =
        ggml_new_tensor(context.get(), IsTableOfExperts(name) ? GGML_TYPE_I32 : made.type,
                        GGML_MAX_DIMS, made.ne.data());
    if (IsTableOfExperts(name)) made.bytes = ValuesFor(*tensor);
    ggml_set_name(tensor, name.c_str());
    tensor->data = made.bytes.data();
    gguf_add_tensor(metadata, tensor);
  }
  CHECK(gguf_write_to_file(metadata, path.c_str(), false));
}

}  // namespace

std::vector<std::string> ZooArchs() {
  std::vector<std::string> names;
  for (const Arch& arch : Archs()) names.emplace_back(arch.name);
  return names;
}

std::string ZooMemory(const std::string& arch) {
  const std::pair<const char*, const char*> others[] = {{"cohere2moe", "heads, windows"},
                                                        {"deepseek4", "states of pools, streams"},
                                                        {"glm5-next", "delta net, pools, streams"},
                                                        {"hy_v4", "latents, several streams"},
                                                        {"kimi-k3", "delta net, earlier inputs"},
                                                        {"step35", "heads, windows"},
                                                        {"grovemoe", "experts of two sizes"},
                                                        {"jamba", "Mamba"},
                                                        {"llama4", "chunks of positions"},
                                                        {"mellum", "heads, windows"},
                                                        {"mimo2", "heads, windows"},
                                                        {"minimax-01", "linear"},
                                                        {"minimax-m3", "blocks, chosen"},
                                                        {"mistral4", "latents"},
                                                        {"qwen4exp", "delta net, several streams"},
                                                        {"smallthinker", "heads, windows"}};
  for (const auto& [name, memory] : others) {
    if (arch == name) return memory;
  }
  const std::vector<std::string> ours = TinyArchs();
  return std::ranges::find(ours, arch) == ours.end() ? "heads" : MixersOf(arch);
}

bool ZooHasStates(const std::string& arch) {
  const std::string memory = ZooMemory(arch);
  return std::ranges::any_of(
      std::array<std::string_view, 4>{"states", "delta net", "Mamba", "linear"},
      [&](std::string_view kind) { return memory.contains(kind); });
}

std::string WriteZooModel(const std::filesystem::path& dir, std::string_view arch,
                          const ZooSize& size) {
  LoadCpuBackend();
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  Metadata metadata(std::string(arch), size);
  if (arch == "nomic-bert-moe") metadata.Set({"moe_every_n_layers", {2}});
  if (arch == "gemma-embedding") {
    metadata.Set({"attention.sliding_window_pattern", {size.whole_every}});
  }
  for (const Arch& known : Archs()) {
    if (known.name != arch) continue;
    for (const Key& key : known.keys) metadata.Set(key);
  }
  std::array<ggml_backend_dev_t, 1> none = {nullptr};
  llama_model_params params = llama_model_default_params();
  params.devices = none.data();
  params.n_gpu_layers = 0;
  params.use_extra_bufts = false;
  params.load_mode = LLAMA_LOAD_MODE_NONE;
  Weights weights;
  llama_model* model = llama_model_init_from_user(metadata.get(), Weights::Fill, &weights, params);
  CHECK(model != nullptr);
  const std::string path = dir / Format("{}-{}-{}.gguf", arch, size.experts, size.expert_ff);
  if (IsWrittenByUs(arch)) {
    weights.Write(metadata.get(), path);
  } else {
    llama_model_save_to_file(model, path.c_str());
  }
  llama_model_free(model);
  if (size.file_type == 0) return path;
  const std::string quantised = path + ".quantised.gguf";
  llama_model_quantize_params how = llama_model_quantize_default_params();
  how.nthread = 1;
  how.ftype = static_cast<llama_ftype>(size.file_type);
  how.pure = true;
  CHECK(llama_model_quantize(path.c_str(), quantised.c_str(), &how) == 0);
  return quantised;
}

}  // namespace moestro
