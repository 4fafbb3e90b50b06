// SPDX-License-Identifier: MIT
#include "offline/fit/write_fitted.h"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/output_file.h"
#include "base/result.h"
#include "base/text.h"
#include "model/expert_tensors.h"
#include "model/low_copies.h"
#include "model/model_file.h"
#include "model/tensor_names.h"
#include "native/find_weights.h"
#include "offline/gguf_output.h"
#include "offline/record/imatrix_file.h"
#include "offline/weight_types.h"
#include "store/open_files.h"

namespace moestro {
namespace {

constexpr uint32_t kFittedAlignment = 4096;         // alignment that direct reads need
constexpr uint64_t kCopyBytes = uint64_t{2} << 20;  // copied at a time
constexpr uint64_t kFittedPieceWeights = uint64_t{1} << 19;

// A part of an output tensor, as it lies in the source.
struct FittedPart {
  WeightRows rows;
  bool is_copied = false;  // bytes are copied unchanged
};

// One kind of matrix of a layer.
struct FittedMatrix {
  uint32_t layer = 0;
  Matrix matrix = Matrix::kGate;
};

struct FittedTensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::vector<int64_t> ne;
  std::vector<FittedPart> parts;  // in the order of the output
  // Matrix whose importances are used; empty: all columns count equally.
  std::optional<FittedMatrix> judged = {};
  uint64_t bytes() const {
    uint64_t rows = 1;
    for (const int64_t n : std::span(ne).subspan(1)) rows *= static_cast<uint64_t>(n);
    return ggml_row_size(type, ne[0]) * rows;
  }
};

// Plan of the output, complete before the first byte is written.
struct FittedJob {
  ModelFile model;
  std::optional<ImatrixFile> imatrix;
  std::vector<FittedTensor> tensors;  // in file order
  std::vector<std::byte> header;
  uint64_t bytes = 0;  // of the file
};

// `where` in parts of whole rows, `most` bytes each.
void AddParts(const WeightRows& all, bool is_copied, uint64_t most, FittedTensor& tensor) {
  const uint64_t row = ggml_row_size(all.type, all.width);
  const uint64_t step = std::max<uint64_t>(most / row, 1) * row;
  for (uint64_t at = 0; at < all.where.length; at += step) {
    FittedPart part{.rows = all, .is_copied = is_copied};
    part.rows.where.offset += at;
    part.rows.where.length = std::min(step, all.where.length - at);
    tensor.parts.push_back(part);
  }
}

FittedTensor CopyOf(const TensorInfo& info) {
  FittedTensor tensor{.name = info.name, .type = info.type, .ne = {}, .parts = {}};
  size_t dims = info.ne.size();
  while (dims > 1 && info.ne[dims - 1] == 1) --dims;
  tensor.ne.assign(info.ne.begin(), info.ne.begin() + static_cast<ptrdiff_t>(dims));
  const WeightRows all{.where = info.extent, .type = info.type, .width = info.ne[0], .tensor = {}};
  AddParts(all, true, kCopyBytes, tensor);
  return tensor;
}

// Importances of all experts of a layer: [expert][n_in]. A source may have gate and up in one
// tensor, or a tensor for each expert.
Result<std::vector<float>> ImportancesOf(const FittedJob& job, const FittedMatrix& of) {
  TRY(const auto tensors,
      FindExpertTensors(job.model.gguf, job.model.spec, of.layer, "convert the model again"));
  const size_t n_in = job.model.weights.layers[of.layer].experts[of.matrix].n_in;
  std::vector<float> columns(n_in * job.model.spec.router.n_expert);
  for (const ExpertTensor& tensor : tensors) {
    if (tensor.matrix != of.matrix && !(tensor.is_fused && of.matrix == Matrix::kUp)) continue;
    TRY(const Importances read,
        job.imatrix->Read(tensor.info->name, static_cast<uint32_t>(n_in), tensor.n_experts));
    std::ranges::copy(read.columns,
                      columns.begin() + static_cast<ptrdiff_t>(tensor.first_expert * n_in));
  }
  return columns;
}

// Adds one matrix of the experts of a layer that have `width`.
Status AddMatrixAt(const FittedJob& job, uint32_t layer, Matrix m, const Width& width,
                   std::span<const uint32_t> ids, FittedTensor& tensor) {
  const ExpertMatrix& matrix = job.model.weights.layers[layer].experts[m];
  tensor.type = width ? (*width)[m] : matrix.types[ids.front()];
  tensor.ne = {matrix.n_in, matrix.n_out, static_cast<int64_t>(ids.size())};
  const bool has_imatrix = job.imatrix.has_value();
  if (width) TRY_STATUS(CheckFits(tensor.type, matrix.n_in, tensor.name, has_imatrix));
  if (width && has_imatrix) {
    tensor.judged = {.layer = layer, .matrix = m};
    // The importances are read once now, so that a bad one is reported before an hour of work.
    TRY([[maybe_unused]] const std::vector<float> readable, ImportancesOf(job, *tensor.judged));
  }
  for (const uint32_t e : ids) {
    const WeightRows all{.where = matrix.slices[e],
                         .type = matrix.types[e],
                         .width = matrix.n_in,
                         .tensor = {},  // set later: tensors move while the list grows
                         .expert = e};
    const uint64_t step = kFittedPieceWeights / matrix.n_in * ggml_row_size(all.type, all.width);
    AddParts(all, !width.has_value(), step, tensor);
  }
  return {};
}

Status AddExperts(const FittedOptions& options, uint32_t layer, FittedJob& job) {
  const uint32_t n = job.model.spec.router.n_expert;
  const auto widths = std::string_view(options.widths)
                          .substr(size_t{job.model.spec.expert_layers_before(layer)} * n, n);
  for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    if (job.model.weights.layers[layer].experts[m].slices.empty()) continue;
    for (const bool is_low : {false, true}) {
      std::vector<uint32_t> ids;
      for (uint32_t e = 0; e < n; ++e) {
        if ((widths[e] == FitHeader::kLow) == is_low) ids.push_back(e);
      }
      if (ids.empty()) continue;
      job.tensors.push_back(
          {.name = is_low ? LowExpertsName(layer, m) : MergedExpertsName(layer, m),
           .type = GGML_TYPE_F32,
           .ne = {},
           .parts = {}});
      TRY_STATUS(
          AddMatrixAt(job, layer, m, is_low ? options.low : options.high, ids, job.tensors.back()));
    }
  }
  return {};
}

bool KeepsFittedKey(std::string_view key) {
  constexpr std::array<std::string_view, 4> kDropped{"split.", GGUF_KEY_GENERAL_ALIGNMENT,
                                                     "general.file_type", "moestro.fit."};
  return std::ranges::none_of(kDropped, [&](std::string_view d) { return key.starts_with(d); });
}

Result<std::vector<std::byte>> FittedHeaderBytes(const FittedJob& job,
                                                 const FittedOptions& options) {
  const gguf_context_ptr gguf = NewGguf(kFittedAlignment);
  {
    TRY(const gguf_context_ptr keys, ReadKeys(job.model.gguf.paths().front(), KeepsFittedKey));
    gguf_set_kv(gguf.get(), keys.get());
  }
  const ModelId& id = job.model.id;
  gguf_set_val_u32(gguf.get(), "general.quantization_version", GGML_QNT_VERSION);
  gguf_set_val_u32(gguf.get(), kFitVersionKey, kFitVersion);
  gguf_set_val_str(gguf.get(), kFitFingerprintKey, Format("{:016x}", id.fingerprint).c_str());
  TRY(const uint64_t weights, FindWeightsId(job.model, options.weights_folder));
  gguf_set_val_str(gguf.get(), kFitWeightsKey, Format("{:016x}", weights).c_str());
  gguf_set_val_str(gguf.get(), kFitNameKey, id.name.c_str());
  gguf_set_val_str(gguf.get(), kFitHighKey, WidthText(options.high).c_str());
  gguf_set_val_str(gguf.get(), kFitLowKey, WidthText(options.low).c_str());
  gguf_set_val_str(gguf.get(), kFitWidthKey, options.widths.c_str());
  if (job.imatrix) {
    const std::string name = std::filesystem::path(job.imatrix->path()).filename().string();
    gguf_set_val_str(gguf.get(), kFitImatrixKey, name.c_str());
  }
  for (const FittedTensor& tensor : job.tensors) {
    AddTensor(gguf.get(), tensor.name, tensor.type, tensor.ne);
  }
  return HeaderBytes(gguf.get());
}

Result<FittedJob> PrepareFitted(const FittedOptions& options) {
  TRY(ModelFile model, ModelFile::Open(options.model));
  TRY_STATUS(CheckIsNotFitted(model.weights.fit, options.model, "fit"));
  const ModelSpec& spec = model.spec;
  CHECK(options.widths.size() == size_t{spec.n_expert_layers()} * spec.router.n_expert);
  FittedJob job{.model = std::move(model), .imatrix = {}, .tensors = {}, .header = {}, .bytes = 0};
  if (!options.imatrix.empty()) {
    TRY(job.imatrix, ImatrixFile::Open(options.imatrix));
  }
  for (const TensorInfo* tensor : job.model.weights.dense_tensors()) {
    job.tensors.push_back(CopyOf(*tensor));
  }
  if (const TensorInfo* table = job.model.weights.ngram_table; table != nullptr) {
    job.tensors.push_back(CopyOf(*table));
  }
  for (uint32_t layer = 0; layer < job.model.spec.n_layer(); ++layer) {
    if (job.model.spec.has_experts(layer)) TRY_STATUS(AddExperts(options, layer, job));
  }
  TRY(job.header, FittedHeaderBytes(job, options));
  job.bytes = job.header.size();
  for (const FittedTensor& tensor : job.tensors) {
    job.bytes += AlignUp(tensor.bytes(), kFittedAlignment);
  }
  return job;
}

Result<std::vector<std::byte>> MakePart(const ExtentReader& reader, const FittedTensor& tensor,
                                        const FittedPart& part, std::span<const float> columns) {
  WeightRows rows = part.rows;
  rows.tensor = tensor.name;
  if (!part.is_copied) {
    const size_t first = rows.expert.value() * static_cast<size_t>(rows.width);
    return Requantize(reader, rows, tensor.type, columns.empty() ? nullptr : &columns[first]);
  }
  TRY(const ExtentBytes read, reader.Read(rows.where));
  return std::vector<std::byte>(read.bytes.begin(), read.bytes.end());
}

}  // namespace

std::string WidthText(const Width& width) { return width ? width->text() : "source"; }

Result<uint64_t> WriteFitted(const FittedOptions& options) {
  TRY(const FittedJob job, PrepareFitted(options));
  OutputPath path = options.path;
  path.Spare(job.model.gguf.paths());
  path.Spare(options.imatrix);
  TRY_STATUS(CheckMayWrite(path, options.overwrite));
  TRY_STATUS(CheckRoom(path, job.bytes));
  TRY(const ExtentReader reader, ExtentReader::Open(job.model.gguf.paths()));
  TRY(OutputFile file, OutputFile::Create(std::move(path)));
  TRY_STATUS(file.Write(job.header));
  for (const FittedTensor& tensor : job.tensors) {
    ggml_quantize_init(tensor.type);  // tables that threads share
    std::vector<float> columns;
    if (tensor.judged) {
      TRY(columns, ImportancesOf(job, *tensor.judged));
    }
    const auto make = [&](uint64_t i) {
      return MakePart(reader, tensor, tensor.parts[i], columns);
    };
    const auto take = [&](std::span<const std::byte> bytes) -> Status {
      TRY_STATUS(file.Write(bytes));
      if (options.progress) options.progress(file.size(), job.bytes);
      return {};
    };
    TRY_STATUS(RunInOrder(tensor.parts.size(), options.threads, make, take));
    TRY_STATUS(PadTo(file, kFittedAlignment));
  }
  TRY_STATUS(file.Publish());
  file.Keep();
  return job.bytes;
}

namespace {

uint64_t BytesAt(const ModelFile& model, const LowTypes& types) {
  const uint64_t n_embd = model.spec.n_embd_expert();
  const bool has_gate = HasGate(model.spec.experts.activation);
  uint64_t bytes = 0;  // of one expert in each layer
  for (const uint32_t n_ff : model.spec.expert_widths()) {
    const auto row = [&](Matrix m) {
      return ggml_row_size(types[m], static_cast<int64_t>(n_embd));
    };
    bytes += (row(Matrix::kUp) + (has_gate ? row(Matrix::kGate) : 0)) * n_ff +
             ggml_row_size(types[Matrix::kDown], n_ff) * n_embd;
  }
  return bytes * model.spec.router.n_expert;
}

Result<std::vector<float>> MatrixOf(const ExtentReader& reader, const ExpertMatrix& matrix,
                                    size_t expert) {
  return ReadWeightRows(reader, {.where = matrix.slices[expert],
                                 .type = matrix.types[expert],
                                 .width = matrix.n_in,
                                 .tensor = "experts",
                                 .expert = expert});
}

}  // namespace

Result<std::vector<SizedWidth>> PlanWidths(const ModelFile& model,
                                           std::span<const ggml_type> types) {
  std::vector<SizedWidth> widths(1);
  for (const LayerWeights& layer : model.weights.layers) widths[0].bytes += layer.experts.bytes();
  for (const ggml_type type : types) {
    LowTypes low;
    low.types.fill(FittingType(type, model.spec.n_embd_expert()));
    ggml_type& down = low.types[static_cast<size_t>(Matrix::kDown)];
    down = type;
    for (const uint32_t n_ff : model.spec.expert_widths()) down = FittingType(down, n_ff);
    for (const ggml_type each : low.types) {
      TRY_STATUS(CheckFits(each, ggml_blck_size(each), "the experts", false));
    }
    const uint64_t bytes = BytesAt(model, low);
    const bool is_known = std::ranges::contains(widths, bytes, &SizedWidth::bytes);
    if (bytes < widths[0].bytes && !is_known) widths.push_back({.width = low, .bytes = bytes});
  }
  if (widths.size() == 1) {
    return Fail(Errc::kInvalidRequest,
                "none of --widths takes less than the model's own experts; name lower types");
  }
  std::ranges::sort(widths, std::greater<>(), &SizedWidth::bytes);
  return widths;
}

Result<std::vector<double>> WidthErrors(const std::string& high, const std::string& low) {
  TRY(const ModelFile model, ModelFile::Open(high));
  TRY(const LowCopies copies, OpenLowCopies(low, model));
  TRY(const ExtentReader high_reader, ExtentReader::Open(model.gguf.paths()));
  TRY(const ExtentReader low_reader, ExtentReader::Open(copies.gguf.paths()));
  std::vector<double> errors;
  for (const LayerWeights& layer : model.weights.layers) {
    if (layer.experts.is_empty()) continue;
    const LayerExperts& other = copies.layers[errors.size() / model.spec.router.n_expert];
    for (size_t e = 0; e < model.spec.router.n_expert; ++e) {
      double off = 0.0;
      double all = 0.0;
      for (size_t m = 0; m < kMatrices; ++m) {
        if (layer.experts.matrices[m].slices.empty()) continue;
        TRY(const std::vector<float> a, MatrixOf(high_reader, layer.experts.matrices[m], e));
        TRY(const std::vector<float> b, MatrixOf(low_reader, other.matrices[m], e));
        for (size_t i = 0; i < a.size(); ++i) {
          const double difference = double{a[i]} - double{b[i]};
          off += difference * difference;
          all += double{a[i]} * double{a[i]};
        }
      }
      errors.push_back(all > 0.0 ? std::sqrt(off / all) : 0.0);
    }
  }
  return errors;
}

}  // namespace moestro
