// SPDX-License-Identifier: MIT
#include "offline/convert/switch_config.h"

#include <optional>
#include <string_view>

#include "base/format.h"
#include "base/printable.h"

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

}  // namespace moestro
