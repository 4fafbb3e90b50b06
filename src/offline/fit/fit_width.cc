// SPDX-License-Identifier: MIT
#include "offline/fit/fit_width.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "model/low_copies.h"
#include "offline/quantize/requantize.h"
#include "offline/weight_types.h"
#include "store/extent_reader.h"

namespace moestro {
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
