// SPDX-License-Identifier: MIT
#include "offline/convert/switch_keys.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "offline/convert/safetensors.h"
#include "offline/convert/unigram.h"

namespace moestro {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 24U;   // products of two fit any arithmetic
constexpr int64_t kMostExperts = (1U << 16U) - 1;  // ids have 16 bits
constexpr int64_t kMostLayers = 4096;
constexpr int64_t kMostBuckets = 4096;

// Reads keys and remembers the first fault.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const std::string& file) : json_(json), file_(file) {}

  // nullopt: the key is missing or null.
  std::optional<JsonView> Value(std::string_view key) const {
    const auto value = json_.Find(key);
    return value && value->kind() != JsonKind::kNull ? value : std::nullopt;
  }

  // A whole number in a range; `without`: the value where the key is missing; nullopt: the key is
  // required.
  uint32_t Number(std::string_view key, int64_t least, int64_t most,
                  std::optional<uint32_t> without = std::nullopt) {
    const auto value = Value(key);
    if (!value && without) return *without;
    if (!value) return Bad(Format("has no '{}'", key));
    const auto number = value->integer();
    if (number && *number >= least && *number <= most) return static_cast<uint32_t>(*number);
    return Bad(Format("has '{}': {}, not a whole number from {} to {}", key,
                      Printable(value->Dump(), 40), least, most));
  }

  // A token's id, or the first of a list.
  uint32_t Token(std::string_view key, uint32_t vocab, uint32_t without) {
    auto value = Value(key);
    if (value && value->kind() == JsonKind::kArray) value = value->At(0);
    if (!value) return without;
    const auto number = value->integer();
    if (number && *number >= 0 && *number < vocab) return static_cast<uint32_t>(*number);
    return Bad(Format("has '{}': {}, no token of a vocabulary of {}", key,
                      Printable(value->Dump(), 40), vocab));
  }

  bool Flag(std::string_view key, bool without) {
    const auto value = Value(key);
    if (!value) return without;
    const auto flag = value->boolean();
    if (!flag)
      Bad(Format("has '{}': {}, neither true nor false", key, Printable(value->Dump(), 40)));
    return flag.value_or(without);
  }

  std::string Text(std::string_view key) const {
    const auto value = Value(key);
    return value ? value->text().value_or(Printable(value->Dump(), 40)) : "";
  }

  uint32_t Bad(const std::string& what) {
    if (!fault_) fault_ = Error{Errc::kInvalidFile, Format("{} {}", file_, what)};
    return 0;
  }
  std::unexpected<Error> Unsupported(const std::string& what) const {
    return Fail(Errc::kUnsupported, "{} {}", file_, what);
  }
  const std::optional<Error>& fault() const { return fault_; }

 private:
  const Json& json_;
  const std::string& file_;
  std::optional<Error> fault_;
};

Status CheckIsRun(ConfigReader& reader) {
  const std::string type = reader.Text("model_type");
  if (type != "switch_transformers") {
    return reader.Unsupported(Format(
        "is of model_type '{}'; 'switch_transformers' is what is converted", Printable(type)));
  }
  for (const std::string_view key : {"dense_act_fn", "feed_forward_proj"}) {
    const std::string activation = reader.Text(key);
    if (activation.empty() || activation == "relu") continue;
    return reader.Unsupported(Format("has '{}': '{}'; nothing here runs another than 'relu'", key,
                                     Printable(activation)));
  }
  if (reader.Flag("is_gated_act", false)) {
    return reader.Unsupported("has a gated activation (is_gated_act), which nothing here runs");
  }
  if (reader.Flag("router_bias", false)) {
    return reader.Unsupported("has routers with a bias (router_bias), which nothing here runs");
  }
  return {};
}

// Distance of sparse layers, as transformers computes it where the config lacks it.
uint32_t SparseStep(ConfigReader& reader, std::string_view step, std::string_view sparse,
                    uint32_t layers) {
  if (reader.Value(step)) return reader.Number(step, 0, kMostLayers);
  const uint32_t count = reader.Number(sparse, 0, kMostLayers);
  return count > 0 ? layers / count : layers;
}

float Epsilon(ConfigReader& reader) {
  const auto value = reader.Value("layer_norm_epsilon");
  if (!value) return 1e-6F;
  const auto epsilon = value->number();
  if (epsilon && *epsilon >= 0 && *epsilon < 1) return static_cast<float>(*epsilon);
  reader.Bad(Format("has 'layer_norm_epsilon': {}, not a number from 0 to 1",
                    Printable(value->Dump(), 40)));
  return 0;
}

}  // namespace

Result<SwitchConfig> ReadSwitchConfig(const Json& json, const std::string& file) {
  ConfigReader reader(json, file);
  TRY_STATUS(CheckIsRun(reader));
  SwitchConfig config;
  config.name = reader.Text("_name_or_path");
  config.encoder_layers = reader.Number("num_layers", 1, kMostLayers);
  config.decoder_layers =
      reader.Number("num_decoder_layers", 1, kMostLayers, config.encoder_layers);
  config.embd = reader.Number("d_model", 1, kMostSize);
  config.ff = reader.Number("d_ff", 1, kMostSize);
  config.heads = reader.Number("num_heads", 1, kMostSize);
  config.head_dim = reader.Number("d_kv", 1, kMostSize);
  config.experts = reader.Number("num_experts", 1, kMostExperts);
  config.capacity = reader.Number("expert_capacity", 1, INT32_MAX, 64);
  config.buckets = reader.Number("relative_attention_num_buckets", 2, kMostBuckets, 32);
  config.max_distance = reader.Number("relative_attention_max_distance", 1, kMostSize, 128);
  config.context = reader.Number("n_positions", 1, kMostSize, 512);
  config.vocab = reader.Number("vocab_size", 1, kMostSize);
  config.pad_token = reader.Token("pad_token_id", config.vocab, 0);
  config.eos_token = reader.Token("eos_token_id", config.vocab, 1);
  config.start_token = reader.Token("decoder_start_token_id", config.vocab, config.pad_token);
  config.encoder_step =
      SparseStep(reader, "encoder_sparse_step", "num_sparse_encoder_layers", config.encoder_layers);
  config.decoder_step =
      SparseStep(reader, "decoder_sparse_step", "num_sparse_decoder_layers", config.decoder_layers);
  config.epsilon = Epsilon(reader);
  config.is_tied = reader.Flag("tie_word_embeddings", true);
  if (reader.fault()) return std::unexpected(*reader.fault());
  return config;
}

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

namespace {

constexpr const char* kSentencePiece = "spiece.model";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr size_t kMostFile = 32 * kMiB;
constexpr size_t kMostValues = size_t{1} << 20U;
constexpr int64_t kUsualSentinels = 100;
constexpr float kUnusedScore = -1000.0F;  // llama.cpp's value

// Number of sentinels behind the pieces of spiece.model, which does not hold them.
Result<int64_t> Sentinels(const std::string& folder) {
  TRY(const auto config, ReadFolderJson(folder, "tokenizer_config.json", kMostFile, kMostValues));
  const auto count = config ? config->Find("extra_ids") : std::nullopt;
  if (!count) return kUsualSentinels;
  const auto number = count->integer();
  if (number && *number >= 0 && *number < static_cast<int64_t>(kMostPieces)) return *number;
  return Fail(Errc::kInvalidFile, "{}/tokenizer_config.json has 'extra_ids': {}, no number of them",
              folder, Printable(count->Dump(), 40));
}

Result<UnigramVocab> WithSentinels(UnigramVocab vocab, const std::string& folder) {
  TRY(const int64_t sentinels, Sentinels(folder));
  for (int64_t i = sentinels; i > 0; --i) {  // their numbers fall
    vocab.pieces.push_back({.text = Format("<extra_id_{}>", i - 1),
                            .score = kUnusedScore,
                            .kind = PieceKind::kUserDefined});
  }
  TRY_STATUS(CheckUnigram(vocab, Format("{}/{}", folder, kSentencePiece)));
  return vocab;
}

}  // namespace

Result<UnigramVocab> ReadSwitchTokenizer(const std::string& folder) {
  TRY(const auto bytes, ReadFolderText(folder, kSentencePiece, kMostFile));
  if (bytes) {
    TRY(UnigramVocab vocab, ParseSentencePiece(*bytes, Format("{}/{}", folder, kSentencePiece)));
    return WithSentinels(std::move(vocab), folder);
  }
  TRY(const auto json, ReadFolderJson(folder, kTokenizer, kMostFile, kMostValues));
  if (json) return ParseTokenizerJson(*json, Format("{}/{}", folder, kTokenizer));
  return Fail(Errc::kIo, "{} has no tokenizer: neither {} nor {}; fetch one of them", folder,
              kSentencePiece, kTokenizer);
}

Status FillRows(UnigramVocab& vocab, const SwitchConfig& config) {
  if (vocab.pieces.size() > config.vocab) {
    return Fail(Errc::kInvalidFile,
                "the tokenizer has {} pieces, the embedding {} rows; they are of two models",
                vocab.pieces.size(), config.vocab);
  }
  while (vocab.pieces.size() < config.vocab) {
    vocab.pieces.push_back({.text = Format("[PAD{}]", vocab.pieces.size()),
                            .score = kUnusedScore,
                            .kind = PieceKind::kUnused});
  }
  const Piece& end = vocab.pieces[config.eos_token];
  if (end.kind != PieceKind::kControl) {
    return Fail(Errc::kInvalidFile,
                "eos_token_id of config.json is {}, which is '{}' and no control token of the "
                "tokenizer",
                config.eos_token, Printable(end.text));
  }
  return CheckUnigram(vocab, "the tokenizer");
}

void SetTokenizerKeys(gguf_context* gguf, const UnigramVocab& vocab, const SwitchConfig& config) {
  std::vector<const char*> texts;
  std::vector<float> scores;
  std::vector<int32_t> kinds;
  for (const Piece& piece : vocab.pieces) {
    texts.push_back(piece.text.c_str());
    scores.push_back(piece.score);
    kinds.push_back(static_cast<int32_t>(piece.kind));
  }
  const auto unknown = std::ranges::find(vocab.pieces, PieceKind::kUnknown, &Piece::kind);
  gguf_set_val_str(gguf, "tokenizer.ggml.model", "t5");
  gguf_set_val_str(gguf, "tokenizer.ggml.pre", "default");
  gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds.data(), kinds.size());
  gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", config.eos_token);
  gguf_set_val_u32(gguf, "tokenizer.ggml.padding_token_id", config.pad_token);
  gguf_set_val_u32(gguf, "tokenizer.ggml.unknown_token_id",
                   static_cast<uint32_t>(unknown - vocab.pieces.begin()));
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_space_prefix", vocab.adds_space_prefix);
  gguf_set_val_bool(gguf, "tokenizer.ggml.remove_extra_whitespaces", vocab.removes_extra_spaces);
  if (!vocab.charsmap.empty()) {
    gguf_set_arr_data(gguf, "tokenizer.ggml.precompiled_charsmap", GGUF_TYPE_UINT8,
                      vocab.charsmap.data(), vocab.charsmap.size());
  }
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", false);
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_eos_token", true);
}

}  // namespace moestro
