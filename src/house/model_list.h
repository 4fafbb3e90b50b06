// SPDX-License-Identifier: MIT
// The models of a house by name. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moestro {

// Bytes of the longest name.
inline constexpr size_t kLongestName = 512;

// A model that a house may load.
struct HouseModel {
  std::string name;                         // what clients call it
  std::string path;                         // of its (first) file
  std::vector<std::string> arguments = {};  // flags of `moestro serve` for its process
  double keep_alive = -1.0;                 // seconds; negative: for ever
  uint64_t most = UINT64_MAX;               // bytes that it gets at most
};

// A file's name as a model's: without its folder, ".gguf" and the number of a split model's part.
std::string ModelNameOfFile(const std::string& path);
// Whether a file in a folder of models is one to list: a GGUF, of a split model the first part, and
// no part that only stands beside a model (a projector of pictures).
bool IsModelFile(std::string_view file_name);

// kUsage: no model, a name that is empty, too long or not printable, or one that two models have;
// the message has the remedy.
Status CheckHouseModels(std::span<const HouseModel> models);

// The model that a client names: by its name, else without ":latest", which Ollama's clients add.
std::optional<size_t> FindHouseModel(std::span<const HouseModel> models, std::string_view name);
// "; there are a, b, ..." for the end of a message.
std::string NamesText(std::span<const HouseModel> models);
// "there is no model 'x'; nearest: y" with the names at the end where none is near.
std::string UnknownModel(std::span<const HouseModel> models, std::string_view name);

}  // namespace moestro
