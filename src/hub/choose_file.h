// SPDX-License-Identifier: MIT
// Chooses the files of a repository that a name means. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/model_name.h"

namespace moestro {

// A file as a repository lists it.
struct HubFile {
  std::string path;
  uint64_t size = 0;        // bytes
  std::string sha256 = {};  // of the content, 64 hexadecimal digits; empty: kept in git itself
  std::string git_id = {};  // git's name of the content, 40 digits; of a large file, of its pointer
};

// A model of a repository: a file, or the parts of a split one in order.
struct HubModel {
  std::string quantisation;  // by the file's name, in upper case: "Q4_K_M", "UD-IQ2_XXS"; may be ""
  std::string name;          // the path without ".gguf" and without the part's number
  std::vector<HubFile> files;
  size_t n_parts = 1;  // parts, by its file names

  bool is_complete() const;  // each part once
  uint64_t bytes() const;
  // Text to type behind the repository's name: the quantisation, or the name if it has none.
  const std::string& label() const { return quantisation.empty() ? name : quantisation; }
};

// All models, the best first: of the same weights the larger file is the better one. Files that
// belong to a model without being one (mmproj, imatrix) are left out.
std::vector<HubModel> ModelsIn(std::span<const HubFile> files);

// The model that `name` means: the file it names, or any part of it; else its quantisation, in any
// case; without one Q4_K_M, or the only model. REQUIRES: name.kind is kHub. kInvalidRequest: the
// repository has no GGUF; it lacks the file or quantisation (names the nearest); two files match
// (names both); the name leaves several models open (lists them, the best first); a part of a split
// model is missing.
Result<HubModel> ChooseModel(std::span<const HubFile> files, const ModelName& name);

// The models that `name` means among `models`; missing parts are not reported.
std::vector<HubModel> MatchingModels(std::span<const HubModel> models, const ModelName& name);
// Error for a name that means several models. REQUIRES: found is not empty.
Error SeveralMatch(std::span<const HubModel> found, const ModelName& name);

// "Q8_0 (32.4 GiB), Q4_K_M (18.6 GiB)".
std::string ListText(std::span<const HubModel> models);

}  // namespace moestro
