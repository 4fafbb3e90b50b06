// SPDX-License-Identifier: MIT
#include "offline/convert/folder_weights.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/small_file.h"
#include "offline/convert/safetensors.h"
#include "store/extent_reader.h"

namespace moestro {
namespace {

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMostIndexBytes = 32 * kMiB;
constexpr size_t kMostIndexValues = size_t{1} << 20U;

bool IsThere(const std::string& folder, std::string_view name) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::path(folder) / name, error);
}

// Error for a folder without a safetensors file.
std::unexpected<Error> NoWeights(const std::string& folder) {
  if (!IsThere(folder, "pytorch_model.bin") && !IsThere(folder, "pytorch_model.bin.index.json")) {
    return Fail(Errc::kIo, "{} has neither {} nor {}; give a folder as Hugging Face has it", folder,
                kOneFile, kIndex);
  }
  return Fail(Errc::kUnsupported,
              "{0} has pytorch_model.bin alone, a pickle, which can run any code and is never "
              "read; save it as safetensors: python3 -c \"from transformers import "
              "AutoModelForSeq2SeqLM as M; M.from_pretrained('{0}').save_pretrained('{0}')\"",
              folder);
}

// File of each tensor.
using WeightMap = std::map<std::string, std::string>;

Result<WeightMap> ReadIndex(const std::string& folder) {
  TRY(const auto index, ReadFolderJson(folder, kIndex, kMostIndexBytes, kMostIndexValues));
  if (!index) return NoWeights(folder);
  const auto map = index->Find("weight_map");
  if (!map || map->size() == 0) {
    return Fail(Errc::kInvalidFile, "{}/{} has no weight_map; fetch it again", folder, kIndex);
  }
  WeightMap files;
  for (const auto& [tensor, value] : map->members()) {
    const std::string file = value.text().value_or("");
    // A path could lead out of the folder.
    if (!file.ends_with(".safetensors") || file.contains('/')) {
      return Fail(Errc::kInvalidFile, "{}/{}: tensor '{}' lies in '{}', no file of the folder",
                  folder, kIndex, Printable(tensor), Printable(value.Dump()));
    }
    files.emplace(tensor, file);
  }
  return files;
}

Result<std::vector<SafeTensor>> ReadHeader(const ExtentReader& reader, uint32_t file,
                                           const std::string& path) {
  std::error_code error;
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error) return Fail(Errc::kIo, "cannot read {}: {}", path, error.message());
  if (file_bytes < kSafetensorsPrefix) return Fail(Errc::kInvalidFile, "{} is too short", path);
  const auto text = [](const ExtentBytes& read) {
    return std::string_view(reinterpret_cast<const char*>(read.bytes.data()), read.bytes.size());
  };
  TRY(const ExtentBytes first,
      reader.Read({.file = file, .offset = 0, .length = kSafetensorsPrefix}));
  TRY(const uint64_t bytes, SafetensorsHeaderBytes(text(first), file_bytes, path));
  TRY(const ExtentBytes header,
      reader.Read({.file = file, .offset = kSafetensorsPrefix, .length = bytes}));
  return ParseSafetensors(text(header), file_bytes, path);
}

Status CheckIndex(const WeightMap& files, const FolderWeights::Tensors& tensors,
                  const std::vector<std::string>& paths) {
  for (const auto& [tensor, file] : files) {
    const auto found = tensors.find(tensor);
    if (found != tensors.end() && paths[found->second.where.file].ends_with("/" + file)) continue;
    return Fail(Errc::kInvalidFile,
                "{} says that tensor '{}' lies in {}, where it is not; fetch "
                "the folder again",
                kIndex, Printable(tensor), Printable(file));
  }
  return {};
}

}  // namespace

Result<FolderWeights> FolderWeights::Open(const std::string& folder) {
  FolderWeights made;
  WeightMap files;
  if (IsThere(folder, kOneFile)) {
    made.paths_.push_back(Format("{}/{}", folder, kOneFile));
  } else {
    TRY(files, ReadIndex(folder));
    std::set<std::string> shards;
    for (const auto& [tensor, file] : files) shards.insert(file);
    for (const std::string& file : shards) made.paths_.push_back(folder + "/" + file);
  }
  TRY(const ExtentReader reader, ExtentReader::Open(made.paths_));
  for (uint32_t file = 0; file < made.paths_.size(); ++file) {
    TRY(std::vector<SafeTensor> tensors, ReadHeader(reader, file, made.paths_[file]));
    for (SafeTensor& tensor : tensors) {
      const Extent where{.file = file, .offset = tensor.offset, .length = tensor.bytes};
      const auto [at, is_new] = made.tensors_.emplace(
          std::move(tensor.name), StoredTensor{tensor.type, std::move(tensor.shape), where});
      if (is_new) continue;
      return Fail(Errc::kInvalidFile, "tensor '{}' lies in two files of {}", Printable(at->first),
                  folder);
    }
  }
  TRY_STATUS(CheckIndex(files, made.tensors_, made.paths_));
  return made;
}

const StoredTensor* FolderWeights::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<std::optional<std::string>> ReadFolderText(const std::string& folder, const char* name,
                                                  size_t most) {
  if (!IsThere(folder, name)) return std::nullopt;
  const std::string path = Format("{}/{}", folder, name);
  std::optional<std::string> text = ReadSmallFile(path, most + 1);
  if (!text) return Fail(Errc::kIo, "cannot read {}", path);
  if (text->size() > most) {
    return Fail(Errc::kIo, "{} has more than the {} that are read", path, FormatBytes(most));
  }
  return text;
}

Result<std::optional<Json>> ReadFolderJson(const std::string& folder, const char* name, size_t most,
                                           size_t most_values) {
  TRY(const auto text, ReadFolderText(folder, name, most));
  if (!text) return std::nullopt;
  auto json = Json::Parse(*text, most_values);
  if (!json) {
    return Fail(Errc::kInvalidFile, "{}/{} is no JSON: {}", folder, name, json.error().message);
  }
  if (json->view().kind() == JsonKind::kObject) return std::optional<Json>(*std::move(json));
  return Fail(Errc::kInvalidFile, "{}/{} is no JSON object", folder, name);
}

}  // namespace moestro
