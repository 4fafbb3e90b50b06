// SPDX-License-Identifier: MIT
#include "tests/support/switch_folder_testing.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "base/binary_file.h"
#include "base/json.h"
#include "base/result.h"
#include "base/text.h"

namespace moestro {
namespace {

const char* SafetensorsType(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return "F32";
    case GGML_TYPE_F16:
      return "F16";
    case GGML_TYPE_BF16:
      return "BF16";
    default:
      CHECK(false);
      return "";
  }
}

int64_t Count(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// `values` in a type that holds them exactly.
std::string Bytes(const HandTensor& tensor) {
  const auto n = static_cast<int64_t>(tensor.values.size());
  std::string bytes(ggml_row_size(tensor.type, n), '\0');
  ggml_quantize_chunk(tensor.type, tensor.values.data(), bytes.data(), 0, 1, n, nullptr);
  return bytes;
}

// Multiples of 1/64 below 2: seven bits.
std::vector<float> Values(const std::string& name, int64_t count) {
  std::vector<float> values;
  uint64_t state = std::hash<std::string>()(name) | 1U;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    values.push_back((static_cast<float>(state >> 57U) - 64.0F) / 64.0F);
  }
  return values;
}

// Protobuf's encoding.
void AppendVarint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7U) bytes.push_back(static_cast<char>(value | 0x80U));
  bytes.push_back(static_cast<char>(value));
}
void AppendField(std::string& bytes, uint64_t number, std::string_view value) {
  AppendVarint(bytes, number << 3U | 2U);
  AppendVarint(bytes, value.size());
  bytes += value;
}
void AppendField(std::string& bytes, uint64_t number, uint64_t value) {
  AppendVarint(bytes, number << 3U);
  AppendVarint(bytes, value);
}

class TensorMaker {
 public:
  explicit TensorMaker(const TinySwitch& shape) : shape_(shape) {}

  std::map<std::string, HandTensor> Make() {
    Add("shared", {shape_.vocab, shape_.embd});
    if (!shape_.is_tied) Add("lm_head", {shape_.vocab, shape_.embd});
    for (uint32_t n = 0; n < shape_.encoder_layers; ++n) AddLayer("encoder", n, false);
    for (uint32_t n = 0; n < shape_.decoder_layers; ++n) AddLayer("decoder", n, true);
    Add("encoder.final_layer_norm", {shape_.embd});
    Add("decoder.final_layer_norm", {shape_.embd});
    return std::move(made_);
  }

 private:
  void Add(const std::string& module, std::vector<int64_t> sizes) {
    const std::string name = module + ".weight";
    HandTensor tensor{.name = name, .type = shape_.type, .shape = std::move(sizes), .values = {}};
    if (shape_.has_values) tensor.values = Values(name, Count(tensor.shape));
    made_.emplace(name, std::move(tensor));
  }

  void AddAttention(const std::string& name) {
    const int64_t inner = int64_t{shape_.heads} * shape_.head_dim;
    for (const char* part : {".q", ".k", ".v"}) Add(name + part, {inner, shape_.embd});
    Add(name + ".o", {shape_.embd, inner});
  }

  void AddDense(const std::string& name) {
    Add(name + ".wi", {shape_.ff, shape_.embd});
    Add(name + ".wo", {shape_.embd, shape_.ff});
  }

  void AddLayer(const std::string& stack, uint32_t n, bool is_decoder) {
    const std::string layer = Format("{}.block.{}.layer.", stack, n);
    Add(layer + "0.layer_norm", {shape_.embd});
    AddAttention(layer + "0.SelfAttention");
    if (n == 0) Add(layer + "0.SelfAttention.relative_attention_bias", {32, shape_.heads});
    if (is_decoder) {
      Add(layer + "1.layer_norm", {shape_.embd});
      AddAttention(layer + "1.EncDecAttention");
    }
    const std::string last = layer + (is_decoder ? "2" : "1");
    Add(last + ".layer_norm", {shape_.embd});
    const uint32_t step = is_decoder ? shape_.decoder_step : shape_.encoder_step;
    if (step != 1 && (step == 0 || n % step != 1)) return AddDense(last + ".mlp");
    Add(last + ".mlp.router.classifier", {shape_.experts, shape_.embd});
    for (uint32_t e = 0; e < shape_.experts; ++e) {
      AddDense(Format("{}.mlp.experts.expert_{}", last, e));
    }
  }

  const TinySwitch& shape_;
  std::map<std::string, HandTensor> made_;
};

}  // namespace

std::string SafetensorsHeader(std::string_view json) {
  std::string bytes;
  AppendNumber(bytes, uint64_t{json.size()});
  return bytes += json;
}

void WriteSafetensors(const std::string& path, std::span<const HandTensor> tensors) {
  Json header = Json::Object();
  header.Set("__metadata__", std::move(Json::Object().Set("format", "pt")));
  uint64_t end = 0;
  for (const HandTensor& tensor : tensors) {
    Json shape = Json::Array();
    for (const int64_t size : tensor.shape) shape.Push(size);
    Json offsets = Json::Array();
    offsets.Push(end);
    end += ggml_row_size(tensor.type, Count(tensor.shape));
    offsets.Push(end);
    Json entry = Json::Object();
    entry.Set("dtype", SafetensorsType(tensor.type));
    entry.Set("shape", std::move(shape)).Set("data_offsets", std::move(offsets));
    header.Set(tensor.name, std::move(entry));
  }
  const std::string begin = SafetensorsHeader(header.Dump());
  std::ofstream file(path, std::ios::binary);
  file << begin;
  for (const HandTensor& tensor : tensors) {
    if (!tensor.values.empty()) file << Bytes(tensor);
  }
  file.close();
  std::filesystem::resize_file(path, begin.size() + end);
}

std::vector<HandPiece> HandPieces() {
  std::vector<HandPiece> pieces{
      {"<pad>", 0, 3}, {"</s>", 0, 3}, {"<unk>", 0, 2}, {"\u2581", -2, 1}};
  for (char c = 'a'; c <= 'z'; ++c) {
    pieces.push_back({std::string(1, c), -3.0F - static_cast<float>(c - 'a'), 1});
  }
  return pieces;
}

std::string SentencePieceBytes(std::span<const HandPiece> pieces, std::string_view charsmap,
                               int model) {
  std::string bytes;
  for (const HandPiece& piece : pieces) {
    std::string inner;
    AppendField(inner, 1, piece.text);
    AppendVarint(inner, 2U << 3U | 5U);
    AppendNumber(inner, piece.score);
    if (piece.kind != 1) AppendField(inner, 3, static_cast<uint64_t>(piece.kind));
    AppendField(bytes, 1, inner);
  }
  std::string trainer;
  AppendField(trainer, 3, static_cast<uint64_t>(model));
  AppendField(bytes, 2, trainer);
  std::string normalizer;
  AppendField(normalizer, 1, "test");
  if (!charsmap.empty()) AppendField(normalizer, 2, charsmap);
  AppendField(bytes, 3, normalizer);
  return bytes;
}

std::map<std::string, HandTensor> TinySwitchTensors(const TinySwitch& shape) {
  return TensorMaker(shape).Make();
}

std::string TinySwitchConfig(const TinySwitch& shape) {
  Json config = Json::Object();
  config.Set("model_type", "switch_transformers").Set("d_model", shape.embd).Set("d_ff", shape.ff);
  config.Set("d_kv", shape.head_dim).Set("num_heads", shape.heads);
  config.Set("num_layers", shape.encoder_layers).Set("num_decoder_layers", shape.decoder_layers);
  config.Set("encoder_sparse_step", shape.encoder_step);
  config.Set("decoder_sparse_step", shape.decoder_step);
  config.Set("num_experts", shape.experts).Set("vocab_size", shape.vocab);
  config.Set("tie_word_embeddings", shape.is_tied);
  return config.Dump(1);
}

void WriteTinySwitch(const std::string& folder, const TinySwitch& shape) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << TinySwitchConfig(shape);
  std::ofstream(folder + "/spiece.model", std::ios::binary) << SentencePieceBytes(HandPieces());
  WriteWeights(folder, TinySwitchTensors(shape), shape.shards);
}

void WriteWeights(const std::string& folder, const std::map<std::string, HandTensor>& tensors,
                  uint32_t shards) {
  std::vector<HandTensor> all;
  for (const auto& [name, tensor] : tensors) all.push_back(tensor);
  if (shards == 1) return WriteSafetensors(folder + "/model.safetensors", all);
  Json map = Json::Object();
  const size_t step = (all.size() + shards - 1) / shards;
  for (uint32_t s = 0; s < shards; ++s) {
    const size_t first = std::min(s * step, all.size());
    const auto part = std::span(all).subspan(first, std::min(step, all.size() - first));
    const std::string name = Format("model-{:05}-of-{:05}.safetensors", s + 1, shards);
    WriteSafetensors(Format("{}/{}", folder, name), part);
    for (const HandTensor& tensor : part) map.Set(tensor.name, name);
  }
  Json index = Json::Object();
  index.Set("weight_map", std::move(map));
  std::ofstream(folder + "/model.safetensors.index.json") << index.Dump();
}

}  // namespace moestro
