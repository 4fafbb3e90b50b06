// SPDX-License-Identifier: MIT
#include "offline/quantize.h"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/output_file.h"
#include "base/text.h"
#include "model/low_copies.h"
#include "model/model_file.h"
#include "native/find_weights.h"
#include "offline/gguf_output.h"
#include "offline/record/imatrix_file.h"
#include "offline/weight_types.h"
#include "store/open_files.h"

namespace moestro {
namespace {

constexpr uint32_t kLowAlignment = 4096;               // alignment that direct reads need
constexpr uint64_t kPieceWeights = uint64_t{1} << 19;  // quantised at a time by a thread: 2 MiB F32

// A tensor of the source, and its new type.
struct LowTensor {
  ExpertTensor source;
  ggml_type type = GGML_TYPE_F32;  // the new type
  uint32_t layer = 0;              // among the layers with experts

  const TensorInfo& info() const { return *source.info; }
  int64_t width() const { return info().ne[0]; }
  uint64_t rows() const { return static_cast<uint64_t>(info().ne[1]); }  // of one expert
  uint64_t slice_bytes() const { return ggml_row_size(type, width()) * rows(); }
  uint64_t bytes() const { return slice_bytes() * source.n_experts; }
};

// Plan of the output, complete before the first byte is written.
struct LowJob {
  ModelFile model;
  std::vector<LowTensor> tensors;  // in file order; lead into the model
  std::optional<ImatrixFile> imatrix;
  std::vector<std::byte> header;
  QuantizeReport report;
};

Result<std::vector<LowTensor>> PlanLowTensors(const ModelFile& model, const LowTypes& types,
                                              bool has_imatrix) {
  std::vector<LowTensor> tensors;
  for (uint32_t layer = 0; layer < model.spec.n_layer(); ++layer) {
    if (!model.spec.has_experts(layer)) continue;
    TRY(const auto sources,
        FindExpertTensors(model.gguf, model.spec, layer, "convert the model again"));
    for (const ExpertTensor& source : sources) {
      if (source.is_fused && types[Matrix::kGate] != types[Matrix::kUp]) {
        return Fail(Errc::kInvalidRequest,
                    "gate and up lie in one tensor '{}', so they get one type; not {} and {}",
                    source.info->name, ggml_type_name(types[Matrix::kGate]),
                    ggml_type_name(types[Matrix::kUp]));
      }
      tensors.push_back({.source = source,
                         .type = types[source.matrix],
                         .layer = model.spec.expert_layers_before(layer)});
      TRY_STATUS(
          CheckFits(tensors.back().type, tensors.back().width(), source.info->name, has_imatrix));
    }
  }
  return tensors;
}

// Keeps all keys of the source but those about its vocabulary, its files and its types.
bool KeepsKey(std::string_view key) {
  constexpr std::array<std::string_view, 6> kDropped{
      "tokenizer.",        "split.",           GGUF_KEY_GENERAL_ALIGNMENT,
      "general.file_type", "quantize.imatrix", "moestro.low."};
  return std::ranges::none_of(kDropped, [&](std::string_view d) { return key.starts_with(d); });
}

Result<std::vector<std::byte>> LowHeaderBytes(const LowJob& job, const QuantizeOptions& options) {
  const gguf_context_ptr gguf = NewGguf(kLowAlignment);
  {
    TRY(const gguf_context_ptr keys, ReadKeys(job.model.gguf.paths().front(), KeepsKey));
    gguf_set_kv(gguf.get(), keys.get());
  }
  const ModelId& id = job.model.id;
  gguf_set_val_u32(gguf.get(), "general.quantization_version", GGML_QNT_VERSION);
  gguf_set_val_u32(gguf.get(), kLowVersionKey, kLowVersion);
  gguf_set_val_str(gguf.get(), kLowFingerprintKey, Format("{:016x}", id.fingerprint).c_str());
  TRY(const uint64_t weights, FindWeightsId(job.model, options.weights_folder));
  gguf_set_val_str(gguf.get(), kLowWeightsKey, Format("{:016x}", weights).c_str());
  gguf_set_val_str(gguf.get(), kLowNameKey, id.name.c_str());
  gguf_set_val_str(gguf.get(), kLowTypesKey, options.types.text().c_str());
  if (job.imatrix) {
    const std::string name = std::filesystem::path(job.imatrix->path()).filename().string();
    gguf_set_val_str(gguf.get(), kLowImatrixKey, name.c_str());
  }
  for (const LowTensor& tensor : job.tensors) {
    const size_t dims = tensor.info().ne[2] > 1 ? 3 : 2;
    AddTensor(gguf.get(), tensor.info().name, tensor.type, std::span(tensor.info().ne).first(dims));
  }
  return HeaderBytes(gguf.get());
}

void FillLowReport(LowJob& job) {
  QuantizeReport& report = job.report;
  report.bytes = job.header.size();
  for (const LowTensor& tensor : job.tensors) {
    const uint64_t parts = tensor.source.is_fused ? 2 : 1;
    const uint64_t slice = tensor.slice_bytes() / parts;
    const uint64_t slices = tensor.source.n_experts * parts;
    report.bytes += AlignUp(tensor.bytes(), kLowAlignment);
    report.source_bytes += tensor.info().extent.length;
    report.slices += slices;
    for (uint64_t s = 0; s < slices; ++s) {
      report.aligned_slices += s * slice % kLowAlignment == 0 ? 1 : 0;
    }
  }
  report.layers = job.model.spec.n_expert_layers();
  report.experts = job.model.spec.router.n_expert;
}

Status CheckIsLower(const LowJob& job, const LowTypes& types) {
  uint64_t bytes = 0;
  for (const LowTensor& tensor : job.tensors) bytes += tensor.bytes();
  if (bytes < job.report.source_bytes) return {};
  return Fail(Errc::kInvalidRequest,
              "{} would take {}, the model's own experts take {}; choose lower types", types.text(),
              FormatBytes(bytes), FormatBytes(job.report.source_bytes));
}

Result<Importances> ImportancesOf(const ImatrixFile& imatrix, const LowTensor& tensor) {
  return imatrix.Read(tensor.info().name, static_cast<uint32_t>(tensor.width()),
                      tensor.source.n_experts);
}

// Reads all importances once, so that a bad one is reported before an hour of work.
Status CheckImportances(LowJob& job) {
  if (!job.imatrix) return {};
  job.report.unvisited.resize(job.report.layers);
  for (const LowTensor& tensor : job.tensors) {
    TRY(const Importances importances, ImportancesOf(*job.imatrix, tensor));
    // An expert is visited in all three matrices or in none: counted once.
    if (tensor.source.matrix != Matrix::kDown) continue;
    job.report.unvisited[tensor.layer] += importances.unvisited;
  }
  return {};
}

// Checks that types are named for the matrices that the model's experts have.
Result<LowTypes> TypesFor(const ModelFile& model, LowTypes types) {
  ggml_type& gate = types.types[static_cast<size_t>(Matrix::kGate)];
  if (!HasGate(model.spec.experts.activation)) gate = GGML_TYPE_COUNT;
  if (gate != GGML_TYPE_COUNT || !HasGate(model.spec.experts.activation)) return types;
  return Fail(Errc::kUsage, "'gate' has no type in '{}'", types.text());
}

Result<LowJob> PrepareLow(QuantizeOptions& options) {
  if (options.path.empty()) return Fail(Errc::kUsage, "no output file named");
  TRY(ModelFile model, ModelFile::Open(options.model));
  TRY_STATUS(CheckIsNotFitted(model.weights.fit, options.model, "quantise"));
  TRY(options.types, TypesFor(model, options.types));
  LowJob job{.model = std::move(model), .tensors = {}, .imatrix = {}, .header = {}, .report = {}};
  if (!options.imatrix.empty()) {
    TRY(job.imatrix, ImatrixFile::Open(options.imatrix));
  }
  options.path.Spare(job.model.gguf.paths());
  if (job.imatrix) options.path.Spare(job.imatrix->path());
  TRY_STATUS(options.path.Check());
  TRY(job.tensors, PlanLowTensors(job.model, options.types, job.imatrix.has_value()));
  TRY(job.header, LowHeaderBytes(job, options));
  FillLowReport(job);
  TRY_STATUS(CheckIsLower(job, options.types));
  TRY_STATUS(CheckImportances(job));
  return job;
}

// Some rows of one expert.
struct LowPiece {
  uint64_t expert = 0;
  uint64_t row = 0;  // of the expert's
  uint64_t rows = 0;
};

class LowPieces {
 public:
  explicit LowPieces(const LowTensor& tensor)
      : tensor_(tensor),
        step_(std::max<uint64_t>(kPieceWeights / static_cast<uint64_t>(tensor.width()), 1)),
        per_expert_((tensor.rows() + step_ - 1) / step_) {}

  uint64_t size() const { return tensor_.source.n_experts * per_expert_; }
  LowPiece operator[](uint64_t i) const {
    const uint64_t row = i % per_expert_ * step_;
    return {.expert = i / per_expert_, .row = row, .rows = std::min(step_, tensor_.rows() - row)};
  }

 private:
  const LowTensor& tensor_;
  uint64_t step_;
  uint64_t per_expert_;
};

// columns: importances of the expert's columns, [width]; null: all alike.
Result<std::vector<std::byte>> QuantizePiece(const LowTensor& tensor, const LowPiece& piece,
                                             const ExtentReader& reader, const float* columns) {
  const TensorInfo& info = tensor.info();
  const uint64_t row_bytes = ggml_row_size(info.type, tensor.width());
  const uint64_t first = piece.expert * tensor.rows() + piece.row;
  const WeightRows rows{.where = {.file = info.extent.file,
                                  .offset = info.extent.offset + first * row_bytes,
                                  .length = piece.rows * row_bytes},
                        .type = info.type,
                        .width = tensor.width(),
                        .tensor = info.name,
                        .expert = piece.expert};
  return Requantize(reader, rows, tensor.type, columns);
}

// Writes the tensors of a job and reports progress.
class LowWriter {
 public:
  LowWriter(const LowJob& job, const QuantizeOptions& options, const ExtentReader& reader,
            OutputFile& file)
      : job_(job), options_(options), reader_(reader), file_(file) {}

  Status WriteAll() {
    std::set<ggml_type> types(options_.types.types.begin(), options_.types.types.end());
    for (const ggml_type type : types) ggml_quantize_init(type);  // tables that threads share
    TRY_STATUS(file_.Write(job_.header));
    for (const LowTensor& tensor : job_.tensors) TRY_STATUS(WriteOne(tensor));
    return {};
  }

 private:
  Status WriteOne(const LowTensor& tensor) {
    const LowPieces pieces(tensor);
    Importances importances;
    if (job_.imatrix) {
      TRY(importances, ImportancesOf(*job_.imatrix, tensor));
    }
    const auto make = [&](uint64_t i) {
      const LowPiece piece = pieces[i];
      const size_t first = piece.expert * static_cast<size_t>(tensor.width());
      const float* columns = job_.imatrix ? importances.columns.data() + first : nullptr;
      return QuantizePiece(tensor, piece, reader_, columns);
    };
    uint64_t taken = 0;
    const auto take = [&](std::span<const std::byte> bytes) -> Status {
      TRY_STATUS(file_.Write(bytes));
      done_ += pieces[taken++].rows * ggml_row_size(tensor.info().type, tensor.width());
      if (options_.progress) options_.progress(done_, job_.report.source_bytes);
      return {};
    };
    TRY_STATUS(RunInOrder(pieces.size(), options_.threads, make, take));
    return PadTo(file_, kLowAlignment);
  }

  const LowJob& job_;
  const QuantizeOptions& options_;
  const ExtentReader& reader_;
  OutputFile& file_;
  uint64_t done_ = 0;  // bytes of the source
};

}  // namespace

Result<QuantizeReport> WriteLowCopies(const QuantizeOptions& options) {
  QuantizeOptions named = options;
  TRY(const LowJob job, PrepareLow(named));
  TRY_STATUS(CheckMayWrite(named.path, named.overwrite));
  TRY_STATUS(CheckRoom(named.path, job.report.bytes));
  TRY(const ExtentReader reader, ExtentReader::Open(job.model.gguf.paths()));
  TRY(OutputFile file, OutputFile::Create(named.path));
  TRY_STATUS(LowWriter(job, named, reader, file).WriteAll());
  TRY_STATUS(file.Publish());
  file.Keep();
  return job.report;
}

}  // namespace moestro
