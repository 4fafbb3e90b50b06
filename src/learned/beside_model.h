// SPDX-License-Identifier: MIT
// Files beside a model: they are made from a model, found by its name and valid for it alone. A new
// kind of file gets its name and its check in this header.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/run_identity.h"

namespace moestro {

// Default path of a file of each kind, if none is named.
inline std::string PathsBeside(const std::string& model_path) { return model_path + ".paths"; }
inline std::string NormsBeside(const std::string& model_path) { return model_path + ".norms"; }
inline std::string TuningBeside(const std::string& model_path) {
  return model_path + ".policy.json";
}
inline std::string SweepBeside(const std::string& model_path) { return model_path + ".sweep.json"; }
// The paths of all kinds, whether the files exist or not.
inline std::vector<std::string> FilesBeside(const std::string& model_path) {
  return {PathsBeside(model_path), NormsBeside(model_path), TuningBeside(model_path),
          SweepBeside(model_path)};
}

// kInvalidRequest, naming the file, both models and the remedy, unless `made_for` may be `model`
// (see ModelId::may_be).
Status CheckMadeFor(const ModelId& model, const ModelId& made_for, const std::string& path,
                    std::string_view remedy);

}  // namespace moestro
