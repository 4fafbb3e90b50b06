// SPDX-License-Identifier: MIT
// Which files of a repository are the model that somebody means. Pure.
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
  size_t n_parts = 1;  // that its file names promise

  bool is_complete() const;  // each part once
  uint64_t bytes() const;
  // What a person types behind the repository's name; the name if there is no quantisation.
  const std::string& label() const { return quantisation.empty() ? name : quantisation; }
};

// All models, the best first: of the same weights the larger file is the better one. Files that
// belong to a model without being one (mmproj, imatrix) are left out.
std::vector<HubModel> ModelsIn(std::span<const HubFile> files);

// The model that `name` means: the file it names, or any part of it; else its quantisation, in any
// case; without one Q4_K_M, or the only one there is. REQUIRES: name.kind is kHub.
// kInvalidRequest: there is no GGUF; the file or quantisation is not there (names the nearest); two
// files match (names both); nothing says which of several (lists them, the best first); a part of a
// split model is missing.
Result<HubModel> ChooseModel(std::span<const HubFile> files, const ModelName& name);

// The models that `name` means among `models`, without a word on what is missing of them.
std::vector<HubModel> MatchingModels(std::span<const HubModel> models, const ModelName& name);
// That several of them are what `name` means. REQUIRES: found is not empty.
Error SeveralMatch(std::span<const HubModel> found, const ModelName& name);

// "Q8_0 (32.4 GiB), Q4_K_M (18.6 GiB)".
std::string ListText(std::span<const HubModel> models);

}  // namespace moestro
