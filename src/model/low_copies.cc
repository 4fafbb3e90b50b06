// SPDX-License-Identifier: MIT
#include "model/low_copies.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/terminal.h"
#include "base/text.h"
#include "model/gguf_file.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

constexpr std::string_view kMakeAgain = "make it again with 'moestro quantize'";

// Compares the file's header with the model, key by key; a missing key is no error.
class LowHeader {
 public:
  LowHeader(const GgufFile& file, const ModelFile& model) : file_(file), model_(model) {}

  Status CheckVersion() const;
  Status CheckFingerprint() const;
  Status CheckArchitecture() const;
  // Checks the number under a key of the architecture, if the file has the key. `other` is accepted
  // as well as `wanted`.
  Status CheckNumber(std::string_view suffix, std::string_view what, uint64_t wanted,
                     uint64_t other) const;

 private:
  const std::string& path() const { return file_.paths().front(); }

  const GgufFile& file_;
  const ModelFile& model_;
};

Status LowHeader::CheckVersion() const {
  TRY(const auto version, file_.FindUint(kLowVersionKey));
  if (!version || *version <= kLowVersion) return {};
  return Fail(Errc::kUnsupported,
              "{}: low copies of version {}, known is {}; use a newer moestro, or {}", path(),
              *version, kLowVersion, kMakeAgain);
}

Status LowHeader::CheckFingerprint() const {
  TRY(const auto text, file_.FindString(kLowFingerprintKey));
  if (!text) return {};
  const auto fingerprint = ParseFingerprint(*text);
  if (!fingerprint) {
    return Fail(Errc::kInvalidFile, "{}: '{}' is '{}', expected 16 hex digits; {}", path(),
                kLowFingerprintKey, Printable(*text), kMakeAgain);
  }
  if (*fingerprint == model_.id.fingerprint) return {};
  // Copies of a source fit every model fitted from that source.
  const auto& fit = model_.weights.fit;
  if (fit && *fingerprint == fit->source_fingerprint) return {};
  TRY(const auto name, file_.FindString(kLowNameKey));
  return Fail(Errc::kInvalidRequest,
              "{}: made from {} (fingerprint {:016x}), not from {}; {} from this model", path(),
              name ? Printable(*name) : "another model", *fingerprint, model_.id.text(),
              kMakeAgain);
}

Status LowHeader::CheckArchitecture() const {
  TRY(const auto arch, file_.FindString("general.architecture"));
  if (arch && *arch == model_.spec.arch_name) return {};
  return Fail(Errc::kInvalidRequest, "{}: architecture {}, but {} is {}; give copies of this model",
              path(), arch ? "'" + Printable(*arch) + "'" : "unknown", model_.id.name,
              model_.spec.arch_name);
}

Status LowHeader::CheckNumber(std::string_view suffix, std::string_view what, uint64_t wanted,
                              uint64_t other) const {
  TRY(const auto found, file_.FindUint(Format("{}.{}", model_.spec.arch_name, suffix)));
  if (!found || *found == wanted || *found == other) return {};
  return Fail(Errc::kInvalidRequest, "{}: {} {}, but {} has {}; give copies of this model", path(),
              *found, what, model_.id.name, wanted);
}

Status CheckSameModel(const GgufFile& file, const ModelFile& model) {
  const LowHeader header(file, model);
  const ModelSpec& spec = model.spec;
  TRY_STATUS(header.CheckVersion());
  TRY_STATUS(header.CheckArchitecture());
  // With an encoder the block count is the number of encoder blocks, not of layers; the tensors
  // show the layers.
  const uint32_t blocks = spec.encoder ? spec.encoder->n_layer : spec.n_layer();
  const uint32_t n_expert = spec.router.n_expert;
  // In copies of a model with layers that predict further tokens, block_count may include these
  // layers, or not if the copies were made from a file without them.
  TRY_STATUS(
      header.CheckNumber("block_count", "layers", blocks, blocks + spec.n_next_token_layers));
  TRY_STATUS(header.CheckNumber("expert_count", "experts of a layer", n_expert, n_expert));
  TRY_STATUS(header.CheckNumber("embedding_length", "values wide", spec.n_embd, spec.n_embd));
  return header.CheckFingerprint();
}

// Experts where the model has none would show another model.
Status CheckNoExperts(const GgufFile& file, const ModelFile& model, uint32_t layer) {
  const std::string name = MergedExpertsName(layer, Matrix::kDown);
  if (file.Find(name) == nullptr) return {};
  return Fail(Errc::kInvalidRequest,
              "{}: tensor '{}' is there, but layer {} of {} has no experts; give copies of this "
              "model",
              file.paths().front(), name, layer, model.id.name);
}

Result<std::optional<uint64_t>> SourceWeights(const GgufFile& file) {
  TRY(const auto text, file.FindString(kLowWeightsKey));
  if (!text) return std::optional<uint64_t>();
  const auto weights = ParseFingerprint(*text);
  if (weights) return weights;
  return Fail(Errc::kInvalidFile, "{}: '{}' is '{}', expected 16 hex digits; {}",
              file.paths().front(), kLowWeightsKey, Printable(*text), kMakeAgain);
}

}  // namespace

uint64_t LowCopies::expert_bytes() const {
  uint64_t bytes = 0;
  for (const LayerExperts& layer : layers) bytes += layer.bytes();
  return bytes;
}

Status CheckLowWeights(const LowCopies& low, const ModelFile& model, uint64_t weights) {
  const std::string& path = low.gguf.paths().front();
  if (!low.source_weights) {
    if (!low.names_source) return {};  // an ordinary GGUF: its shapes were compared
    LogWarning(
        "{} does not say from which weights it was made, an older version wrote it; if the model "
        "has other ones now, {}",
        path, kMakeAgain);
    return {};
  }
  const auto& fit = model.weights.fit;
  if (*low.source_weights == weights) return {};
  if (fit && fit->source_weights == low.source_weights) return {};
  if (fit && !fit->source_weights) {
    LogWarning(
        "{} does not say from which weights it was fitted, an older version wrote it; {} may be of "
        "other ones",
        model.gguf.paths().front(), path);
    return {};
  }
  return Fail(Errc::kInvalidRequest,
              "{}: made from other weights than those of {}, whose header is the same; {} from "
              "this model",
              path, model.id.name, kMakeAgain);
}

Result<LowCopies> OpenLowCopies(const std::string& path, const ModelFile& model) {
  TRY(GgufFile file, GgufFile::Open(path));
  TRY_STATUS(CheckSameModel(file, model));
  TRY(const auto fingerprint, file.FindString(kLowFingerprintKey));
  TRY(const auto weights, SourceWeights(file));
  LowCopies copies{.gguf = std::move(file),
                   .layers = {},
                   .names_source = fingerprint.has_value(),
                   .source_weights = weights};
  for (uint32_t layer = 0; layer < model.spec.n_layer(); ++layer) {
    if (!model.spec.has_experts(layer)) {
      TRY_STATUS(CheckNoExperts(copies.gguf, model, layer));
      continue;
    }
    TRY(const auto tensors, FindExpertTensors(copies.gguf, model.spec, layer, kMakeAgain));
    copies.layers.push_back(SliceExperts(tensors));
  }
  return copies;
}

}  // namespace moestro
