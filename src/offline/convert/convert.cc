// SPDX-License-Identifier: MIT
#include "offline/convert/convert.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/number.h"
#include "base/output_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "model/tensor_names.h"
#include "offline/convert/safetensors.h"
#include "offline/convert/switch_keys.h"
#include "offline/gguf_output.h"
#include "offline/weight_types.h"
#include "store/open_files.h"

namespace moestro {
namespace {

// A tensor of T5's decoder that older folders have and the model does not use: cross attention has
// no bias.
constexpr std::string_view kUnusedBias =
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
constexpr std::string_view kOutput = "lm_head.weight";

// "8, 64".
std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += Format("{}{}", text.empty() ? "" : ", ", size);
  return text;
}

class TensorRecipe {
 public:
  TensorRecipe(const SwitchConfig& config, const FolderWeights& weights, ggml_type type)
      : config_(config), weights_(weights), type_(type) {}

  Result<SwitchTensors> Make() {
    TRY_STATUS(AddEmbedding());
    TRY_STATUS(AddStack(SwitchStack::kEncoder, "encoder"));
    TRY_STATUS(AddNorm("encoder_norm.weight", "encoder.final_layer_norm.weight"));
    TRY_STATUS(AddStack(SwitchStack::kDecoder, "decoder"));
    TRY_STATUS(AddNorm("output_norm.weight", "decoder.final_layer_norm.weight"));
    TRY_STATUS(AddOutput());
    for (const auto& [name, stored] : weights_.tensors()) {
      if (used_.contains(name) || name == kUnusedBias) continue;
      return Fail(Errc::kInvalidFile,
                  "tensor '{}' has no place in a model of this configuration; config.json is of "
                  "another one",
                  Printable(name));
    }
    return std::move(made_);
  }

 private:
  // Takes a tensor of the folder; sizes as in a GGUF.
  Result<NamedTensor> Take(const std::string& name, const std::vector<int64_t>& ne) {
    const StoredTensor* stored = weights_.Find(name);
    if (stored == nullptr) {
      return Fail(Errc::kInvalidFile, "the folder has no tensor '{}', which its config.json wants",
                  name);
    }
    const std::vector<int64_t> shape(ne.rbegin(), ne.rend());
    if (stored->shape != shape) {
      return Fail(Errc::kInvalidFile, "tensor '{}' has the shape {} where config.json wants {}",
                  name, ShapeText(stored->shape), ShapeText(shape));
    }
    used_.insert(name);
    return NamedTensor{name, *stored};
  }

  Status Add(std::string name, ggml_type type, std::vector<int64_t> ne, const std::string& source) {
    TRY(NamedTensor taken, Take(source, ne));
    made_.tensors.push_back(
        {.name = std::move(name), .type = type, .ne = std::move(ne), .sources = {}});
    made_.tensors.back().sources.push_back(std::move(taken));
    return CheckFits(type, made_.tensors.back().width(), source, false);
  }

  Status AddExperts(std::string name, const std::vector<int64_t>& ne, const std::string& experts,
                    const char* matrix) {
    ConvertedTensor tensor{.name = std::move(name), .type = type_, .ne = ne, .sources = {}};
    for (uint32_t expert = 0; expert < config_.experts; ++expert) {
      TRY(NamedTensor taken, Take(Format("{}.expert_{}.{}.weight", experts, expert, matrix), ne));
      tensor.sources.push_back(std::move(taken));
    }
    tensor.ne.push_back(config_.experts);
    TRY_STATUS(CheckFits(type_, tensor.width(), tensor.sources.front().name, false));
    made_.tensors.push_back(std::move(tensor));
    return {};
  }

  // Notes a copy of a tensor that the file has already, if the folder has one.
  Status AddCopy(std::string_view name, const ConvertedTensor& of) {
    if (weights_.Find(name) == nullptr) return {};
    TRY(NamedTensor copy, Take(std::string(name), of.ne));
    const NamedTensor& first = of.sources.front();
    if (copy.stored.type != first.stored.type) {
      return Fail(Errc::kInvalidFile, "tensor '{}' is of another type than '{}', which it copies",
                  name, first.name);
    }
    made_.copies.emplace_back(first, std::move(copy));
    return {};
  }

  // Q4_0 is too coarse for the embedding: each token has one row.
  ggml_type EmbeddingType() const { return type_ == GGML_TYPE_Q4_0 ? GGML_TYPE_Q8_0 : type_; }
  std::vector<int64_t> EmbeddingSizes() const { return {config_.embd, config_.vocab}; }

  // Adds the embedding, which folders have up to three times.
  Status AddEmbedding() {
    constexpr std::array<std::string_view, 3> kNames{"shared.weight", "encoder.embed_tokens.weight",
                                                     "decoder.embed_tokens.weight"};
    std::string_view first = kNames.front();
    for (const std::string_view name : kNames) {
      if (weights_.Find(first) == nullptr) first = name;
    }
    if (weights_.Find(first) == nullptr) first = kNames.front();
    TRY_STATUS(Add("token_embd.weight", EmbeddingType(), EmbeddingSizes(), std::string(first)));
    for (const std::string_view name : kNames) {
      if (name != first) TRY_STATUS(AddCopy(name, made_.tensors.front()));
    }
    return {};
  }

  Status AddOutput() {
    if (config_.is_tied) return AddCopy(kOutput, made_.tensors.front());
    return Add("output.weight", EmbeddingType(), EmbeddingSizes(), std::string(kOutput));
  }

  Status AddNorm(std::string name, const std::string& source) {
    return Add(std::move(name), GGML_TYPE_F32, {config_.embd}, source);
  }

  Status AddAttention(const std::string& name, const std::string& source) {
    const int64_t inner = int64_t{config_.heads} * config_.head_dim;
    for (const char part : {'q', 'k', 'v'}) {
      TRY_STATUS(Add(Format("{}attn_{}.weight", name, part), type_, {config_.embd, inner},
                     Format("{}.{}.weight", source, part)));
    }
    return Add(name + "attn_output.weight", type_, {inner, config_.embd}, source + ".o.weight");
  }

  Status AddFeedForward(const std::string& name, const std::string& source, bool is_sparse) {
    const std::vector<int64_t> up{config_.embd, config_.ff};
    const std::vector<int64_t> down{config_.ff, config_.embd};
    if (!is_sparse) {
      TRY_STATUS(Add(name + "ffn_up.weight", type_, up, source + ".wi.weight"));
      return Add(name + "ffn_down.weight", type_, down, source + ".wo.weight");
    }
    TRY_STATUS(Add(name + "ffn_gate_inp.weight", GGML_TYPE_F32, {config_.embd, config_.experts},
                   source + ".router.classifier.weight"));
    TRY_STATUS(AddExperts(name + "ffn_up_exps.weight", up, source + ".experts", "wi"));
    return AddExperts(name + "ffn_down_exps.weight", down, source + ".experts", "wo");
  }

  // Layers of the file are numbered through both stacks; a block of the decoder is two of them.
  Status AddStack(SwitchStack stack, const std::string& theirs) {
    const bool has_cross = stack == SwitchStack::kDecoder;
    for (uint32_t n = 0; n < config_.layers(stack); ++n) {
      const uint32_t layer = has_cross ? config_.encoder_layers + 2 * n : n;
      std::string name = LayerTensorName(layer, "");
      const std::string source = Format("{}.block.{}.layer.", theirs, n);
      TRY_STATUS(AddNorm(name + "attn_norm.weight", source + "0.layer_norm.weight"));
      TRY_STATUS(AddAttention(name, source + "0.SelfAttention"));
      if (n == 0) {
        TRY_STATUS(Add(name + "attn_rel_b.weight", GGML_TYPE_F32, {config_.heads, config_.buckets},
                       source + "0.SelfAttention.relative_attention_bias.weight"));
      }
      if (has_cross) {
        name = LayerTensorName(layer + 1, "");
        TRY_STATUS(AddNorm(name + "attn_norm.weight", source + "1.layer_norm.weight"));
        TRY_STATUS(AddAttention(name, source + "1.EncDecAttention"));
      }
      const std::string ff = source + (has_cross ? "2" : "1");
      TRY_STATUS(AddNorm(name + "ffn_norm.weight", ff + ".layer_norm.weight"));
      TRY_STATUS(AddFeedForward(name, ff + ".mlp", config_.is_sparse(stack, n)));
    }
    return {};
  }

  const SwitchConfig& config_;
  const FolderWeights& weights_;
  ggml_type type_;
  std::set<std::string, std::less<>> used_;  // of the folder's tensors
  SwitchTensors made_;
};

}  // namespace

Result<SwitchTensors> PlanSwitchTensors(const SwitchConfig& config, const FolderWeights& weights,
                                        ggml_type type) {
  return TensorRecipe(config, weights, type).Make();
}

namespace {

constexpr uint32_t kAlignment = 4096;                  // alignment that direct reads need
constexpr uint64_t kPieceWeights = uint64_t{1} << 19;  // made at a time by a thread: 2 MiB F32
constexpr uint32_t kMostThreads = 16;  // more would take more memory than is promised
constexpr size_t kMostConfig = kMiB;
constexpr size_t kMostConfigValues = 65536;

// Plan of the output, complete before the first byte is written.
struct ConvertJob {
  SwitchConfig config;
  FolderWeights weights;
  SwitchTensors plan;
  std::vector<std::byte> header;
  ConvertReport report;
};

Result<SwitchConfig> ReadConfig(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return Fail(Errc::kIo, "{} is no folder", folder);
  }
  TRY(const auto json, ReadFolderJson(folder, "config.json", kMostConfig, kMostConfigValues));
  if (!json) {
    return Fail(Errc::kIo, "{} has no config.json; give a folder as Hugging Face has it", folder);
  }
  TRY(SwitchConfig config, ReadSwitchConfig(*json, folder + "/config.json"));
  if (config.name.empty()) {
    config.name = std::filesystem::weakly_canonical(folder).filename().string();
  }
  return config;
}

uint32_t SparseLayers(const SwitchConfig& config) {
  uint32_t count = 0;
  for (const SwitchStack stack : {SwitchStack::kEncoder, SwitchStack::kDecoder}) {
    for (uint32_t n = 0; n < config.layers(stack); ++n) count += config.is_sparse(stack, n) ? 1 : 0;
  }
  return count;
}

Result<std::vector<std::byte>> ConvertedHeader(const ConvertJob& job,
                                               const ConvertOptions& options) {
  TRY(UnigramVocab vocab, ReadSwitchTokenizer(options.folder));
  TRY_STATUS(FillRows(vocab, job.config));
  const gguf_context_ptr gguf = NewGguf(kAlignment);
  SetSwitchKeys(gguf.get(), job.config, options.type);
  SetTokenizerKeys(gguf.get(), vocab, job.config);
  for (const ConvertedTensor& tensor : job.plan.tensors) {
    AddTensor(gguf.get(), tensor.name, tensor.type, tensor.ne);
  }
  return HeaderBytes(gguf.get());
}

// Files that are read beside the weights.
std::vector<std::string> DescribingFiles(const std::string& folder) {
  std::vector<std::string> files;
  for (const char* name : {"config.json", "model.safetensors.index.json", "spiece.model",
                           "tokenizer.json", "tokenizer_config.json"}) {
    files.push_back(Format("{}/{}", folder, name));
  }
  return files;
}

Result<ConvertJob> PrepareConvert(const ConvertOptions& options) {
  if (options.path.empty()) return Fail(Errc::kUsage, "no output file named");
  ConvertJob job;
  TRY(job.config, ReadConfig(options.folder));
  TRY(job.weights, FolderWeights::Open(options.folder));
  TRY(job.plan, PlanSwitchTensors(job.config, job.weights, options.type));
  TRY(job.header, ConvertedHeader(job, options));
  job.report = {.bytes = job.header.size(),
                .encoder_layers = job.config.encoder_layers,
                .decoder_layers = job.config.decoder_layers,
                .sparse_layers = SparseLayers(job.config),
                .experts = job.config.experts,
                .vocab = job.config.vocab,
                .is_tied = job.config.is_tied};
  for (const ConvertedTensor& tensor : job.plan.tensors) {
    job.report.bytes += AlignUp(tensor.bytes(), kAlignment);
    for (const NamedTensor& source : tensor.sources) {
      job.report.source_bytes += source.stored.where.length;
    }
  }
  return job;
}

// Some rows of one source.
struct RowPiece {
  size_t source = 0;
  uint64_t row = 0;
  uint64_t rows = 0;
};

// A tensor cut into pieces, each made by one thread.
class RowPieces {
 public:
  explicit RowPieces(const ConvertedTensor& tensor)
      : tensor_(tensor),
        step_(std::max<uint64_t>(kPieceWeights / static_cast<uint64_t>(tensor.width()), 1)),
        per_source_((tensor.rows() + step_ - 1) / step_) {}

  uint64_t size() const { return tensor_.sources.size() * per_source_; }
  RowPiece operator[](uint64_t i) const {
    const uint64_t row = i % per_source_ * step_;
    return {.source = i / per_source_, .row = row, .rows = std::min(step_, tensor_.rows() - row)};
  }

 private:
  const ConvertedTensor& tensor_;
  uint64_t step_;
  uint64_t per_source_;
};

Result<std::vector<std::byte>> ConvertPiece(const ConvertedTensor& tensor, const RowPiece& piece,
                                            const ExtentReader& reader) {
  const NamedTensor& source = tensor.sources[piece.source];
  const uint64_t row_bytes = ggml_row_size(source.stored.type, tensor.width());
  const Extent& whole = source.stored.where;
  const WeightRows rows{.where = {.file = whole.file,
                                  .offset = whole.offset + piece.row * row_bytes,
                                  .length = piece.rows * row_bytes},
                        .type = source.stored.type,
                        .width = tensor.width(),
                        .tensor = source.name,
                        .expert = std::nullopt};
  return Requantize(reader, rows, tensor.type, nullptr);
}

// Checks that two tensors of the folder, which should be one, are equal.
Status CheckIsCopy(const NamedTensor& first, const NamedTensor& copy, const ExtentReader& reader) {
  constexpr uint64_t kStep = kMiB;
  for (uint64_t at = 0; at < first.stored.where.length; at += kStep) {
    const auto part = [&](Extent whole) {
      whole.offset += at;
      whole.length = std::min(kStep, whole.length - at);
      return reader.Read(whole);
    };
    TRY(const ExtentBytes one, part(first.stored.where));
    TRY(const ExtentBytes other, part(copy.stored.where));
    if (std::ranges::equal(one.bytes, other.bytes)) continue;
    return Fail(Errc::kInvalidFile,
                "tensors '{}' and '{}' differ; the file holds one, as Switch models share them",
                first.name, copy.name);
  }
  return {};
}

Status WriteTensors(const ConvertJob& job, const ConvertOptions& options,
                    const ExtentReader& reader, OutputFile& file) {
  TRY_STATUS(file.Write(job.header));
  for (const ConvertedTensor& tensor : job.plan.tensors) {
    const RowPieces pieces(tensor);
    const auto make = [&](uint64_t i) { return ConvertPiece(tensor, pieces[i], reader); };
    const auto take = [&](std::span<const std::byte> bytes) -> Status {
      TRY_STATUS(file.Write(bytes));
      if (options.progress) options.progress(file.size(), job.report.bytes);
      return {};
    };
    TRY_STATUS(RunInOrder(pieces.size(), std::min(options.threads, kMostThreads), make, take));
    TRY_STATUS(PadTo(file, kAlignment));
  }
  return {};
}

}  // namespace

Result<ggml_type> FindConvertType(const std::string& name) {
  constexpr std::array kTypes{GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                              GGML_TYPE_Q4_0};
  for (const ggml_type type : kTypes) {
    if (Uppercase(ggml_type_name(type)) == Uppercase(name)) return type;
  }
  return Fail(Errc::kUsage, "unknown type '{}'; F32, F16, BF16, Q8_0 and Q4_0 are written", name);
}

Result<ConvertReport> ConvertFolder(const ConvertOptions& options) {
  TRY(const ConvertJob job, PrepareConvert(options));
  OutputPath path = options.path;
  path.Spare(job.weights.paths());
  path.Spare(DescribingFiles(options.folder));
  TRY_STATUS(CheckMayWrite(path, options.overwrite));
  TRY_STATUS(CheckRoom(path, job.report.bytes));
  TRY(const ExtentReader reader, ExtentReader::Open(job.weights.paths()));
  for (const auto& [first, copy] : job.plan.copies) {
    TRY_STATUS(CheckIsCopy(first, copy, reader));
  }
  ggml_quantize_init(options.type);  // tables that threads share
  TRY(OutputFile file, OutputFile::Create(std::move(path)));
  TRY_STATUS(WriteTensors(job, options, reader, file));
  TRY_STATUS(file.Publish());
  file.Keep();
  return job.report;
}

}  // namespace moestro
