// SPDX-License-Identifier: MIT
// A model's file, opened: its directory, its specification, the places of its tensors. Made once by
// the code that opens a model and handed along, so that the header is parsed once.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "core/model_id.h"
#include "core/model_spec.h"
#include "model/families/families.h"
#include "model/gguf_file.h"
#include "model/weights.h"

namespace moestro {

struct ModelFile {
  GgufFile gguf;
  ModelSpec spec;
  ModelId id;            // the name is the file's
  ModelWeights weights;  // points into gguf; still does when both are moved

  // `path` as in GgufFile::Open(). Fails as that and Of() do.
  static Result<ModelFile> Open(const std::string& path,
                                std::span<const Family> families = Families());
  // Takes `gguf` over. Fails as ReadSpec() and ReadWeights() do; then `gguf` is as it was.
  static Result<ModelFile> Of(GgufFile& gguf, std::span<const Family> families = Families());
};

}  // namespace moestro
