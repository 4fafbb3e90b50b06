// SPDX-License-Identifier: MIT
#include "model/model_file.h"

#include <filesystem>
#include <utility>

#include "model/fingerprint.h"
#include "model/read_spec.h"

namespace moestro {

Result<ModelFile> ModelFile::Open(const std::string& path, std::span<const Family> families) {
  TRY(GgufFile gguf, GgufFile::Open(path));
  return Of(gguf, families);
}

Result<ModelFile> ModelFile::Of(GgufFile& gguf, std::span<const Family> families) {
  TRY(ModelSpec spec, ReadSpec(gguf, families));
  TRY(ModelWeights weights, ReadWeights(gguf, spec, families));
  ModelId id{
      .name = std::filesystem::path(gguf.paths().front()).filename().string(),
      .fingerprint = Fingerprint(gguf),
      .shape = {.n_layer = spec.n_expert_layers(),
                .n_expert = spec.router.n_expert,
                .n_used = spec.router.n_used,
                .n_encoder = spec.encoder ? spec.expert_layers_before(spec.encoder->n_layer) : 0}};
  return ModelFile{.gguf = std::move(gguf),
                   .spec = std::move(spec),
                   .id = std::move(id),
                   .weights = std::move(weights)};
}

}  // namespace moestro
