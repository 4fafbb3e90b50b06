// SPDX-License-Identifier: MIT
// What lies beside a model: files that were made from it, are found by its name and are good for
// it alone. A new kind of such a file gets its name here and is checked here.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "core/model_id.h"

namespace moestro {

// Where a file of each kind is looked for when none is named.
inline std::string PathsBeside(const std::string& model_path) { return model_path + ".paths"; }
inline std::string NormsBeside(const std::string& model_path) { return model_path + ".norms"; }
inline std::string TuningBeside(const std::string& model_path) {
  return model_path + ".policy.json";
}
inline std::string SweepBeside(const std::string& model_path) { return model_path + ".sweep.json"; }

// kInvalidRequest, naming the file, both models and the remedy, unless `made_for` may be `model`
// (see ModelId::may_be).
Status CheckMadeFor(const ModelId& model, const ModelId& made_for, const std::string& path,
                    std::string_view remedy);

}  // namespace moestro
