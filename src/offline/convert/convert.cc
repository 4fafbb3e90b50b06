// SPDX-License-Identifier: MIT
#include "offline/convert/convert.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/bytes.h"
#include "base/output_file.h"
#include "offline/convert/folder_weights.h"
#include "offline/convert/switch_config.h"
#include "offline/convert/switch_keys.h"
#include "offline/convert/switch_tensors.h"
#include "offline/convert/switch_tokenizer.h"
#include "offline/gguf_output.h"
#include "offline/in_order.h"
#include "offline/quantize/requantize.h"
#include "offline/weight_types.h"
#include "store/extent_reader.h"

namespace moestro {
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
