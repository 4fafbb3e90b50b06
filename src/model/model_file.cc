// SPDX-License-Identifier: MIT
#include "model/model_file.h"

#include <utility>

#include "model/read_spec.h"

namespace moestro {

Result<ModelFile> ModelFile::Open(const std::string& path, std::span<const Family> families) {
  TRY(GgufFile gguf, GgufFile::Open(path));
  TRY(ModelSpec spec, ReadSpec(gguf, families));
  TRY(ModelWeights weights, ReadWeights(gguf, spec, families));
  return ModelFile{.gguf = std::move(gguf), .spec = std::move(spec), .weights = std::move(weights)};
}

}  // namespace moestro
