// SPDX-License-Identifier: MIT
#include "offline/convert/safetensors.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/binary_file.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "store/open_files.h"

namespace moestro {
namespace {

constexpr size_t kMostDims = 4;
constexpr size_t kMostName = 512;

std::optional<ggml_type> TypeOf(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, ggml_type>, 3> kTypes{
      {{"F32", GGML_TYPE_F32}, {"F16", GGML_TYPE_F16}, {"BF16", GGML_TYPE_BF16}}};
  for (const auto& [name, type] : kTypes) {
    if (name == dtype) return type;
  }
  return std::nullopt;
}

// Reads the entries of one file.
class HeaderReader {
 public:
  HeaderReader(uint64_t data_begin, uint64_t file_bytes, const std::string& file)
      : data_begin_(data_begin), data_bytes_(file_bytes - data_begin), file_(file) {}

  Result<SafeTensor> ReadTensor(std::string_view name, JsonView entry) const {
    if (name.empty() || name.size() > kMostName) return Bad(name, "has an impossible name");
    SafeTensor tensor{.name = std::string(name)};
    const auto dtype = TextOf(entry, "dtype");
    if (!dtype) return Bad(name, "has no dtype");
    const auto type = TypeOf(*dtype);
    if (!type) {
      return Fail(Errc::kUnsupported, "{}: tensor '{}' is of type '{}'; F32, F16 and BF16 are read",
                  file_, Printable(name), Printable(*dtype));
    }
    tensor.type = *type;
    TRY(tensor.shape, ShapeOf(name, entry));
    TRY_STATUS(PlaceIt(entry, tensor));
    return tensor;
  }

  std::unexpected<Error> Bad(std::string_view name, std::string_view what) const {
    return Fail(Errc::kInvalidFile, "{}: tensor '{}' {}; fetch the file again", file_,
                Printable(name), what);
  }

 private:
  static std::optional<std::string> TextOf(JsonView entry, std::string_view key) {
    const auto value = entry.Find(key);
    return value ? value->text() : std::nullopt;
  }

  Result<std::vector<int64_t>> ShapeOf(std::string_view name, JsonView entry) const {
    const auto sizes = entry.Find("shape");
    if (!sizes || sizes->kind() != JsonKind::kArray) return Bad(name, "has no shape");
    if (sizes->size() == 0 || sizes->size() > kMostDims) {
      return Bad(name, Format("has {} sizes, not 1 to {}", sizes->size(), kMostDims));
    }
    std::vector<int64_t> shape;
    for (size_t i = 0; i < sizes->size(); ++i) {
      const auto size = sizes->At(i)->integer();
      if (!size || *size <= 0) return Bad(name, "has a size that is no whole number above 0");
      shape.push_back(*size);
    }
    return shape;
  }

  // Places a tensor: checks that its bytes lie in the file and that their number follows from shape
  // and type.
  Status PlaceIt(JsonView entry, SafeTensor& tensor) const {
    const auto offsets = entry.Find("data_offsets");
    if (!offsets || offsets->kind() != JsonKind::kArray || offsets->size() != 2) {
      return Bad(tensor.name, "has no pair of data_offsets");
    }
    const auto begin = offsets->At(0)->integer();
    const auto end = offsets->At(1)->integer();
    if (!begin || !end || *begin < 0 || *end < *begin) {
      return Bad(tensor.name, "has data_offsets that are no range of bytes");
    }
    if (static_cast<uint64_t>(*end) > data_bytes_) {
      return Bad(tensor.name,
                 Format("ends at byte {} of {} that the file has for tensors", *end, data_bytes_));
    }
    tensor.offset = data_begin_ + static_cast<uint64_t>(*begin);
    tensor.bytes = static_cast<uint64_t>(*end - *begin);
    uint64_t wanted = ggml_type_size(tensor.type);
    for (const int64_t size : tensor.shape) {
      if (static_cast<uint64_t>(size) > std::numeric_limits<uint64_t>::max() / wanted) {
        return Bad(tensor.name, "has a shape beyond any memory");
      }
      wanted *= static_cast<uint64_t>(size);
    }
    if (wanted == tensor.bytes) return {};
    return Bad(tensor.name, Format("has {} bytes where its shape wants {}", tensor.bytes, wanted));
  }

  uint64_t data_begin_;
  uint64_t data_bytes_;
  const std::string& file_;
};

}  // namespace

Result<uint64_t> SafetensorsHeaderBytes(std::string_view first, uint64_t file_bytes,
                                        const std::string& file) {
  if (first.size() < kSafetensorsPrefix || file_bytes < kSafetensorsPrefix) {
    return Fail(Errc::kInvalidFile, "{} is too short for a safetensors file", file);
  }
  const auto bytes = Decoder(first).Take<uint64_t>();
  if (bytes > file_bytes - kSafetensorsPrefix) {
    return Fail(Errc::kInvalidFile,
                "{}: a header of {} bytes does not fit the file's {}; it is cut short or no "
                "safetensors file",
                file, bytes, file_bytes);
  }
  if (bytes <= kMostSafetensorsHeader) return bytes;
  return Fail(Errc::kInvalidFile, "{}: a header of {} is more than the {} that are read", file,
              FormatBytes(bytes), FormatBytes(kMostSafetensorsHeader));
}

Result<std::vector<SafeTensor>> ParseSafetensors(std::string_view header, uint64_t file_bytes,
                                                 const std::string& file) {
  const auto json = Json::Parse(header, kMostSafetensorsValues);
  if (!json || json->view().kind() != JsonKind::kObject) {
    return Fail(Errc::kInvalidFile, "{}: the header is no JSON object{}{}", file, json ? "" : ": ",
                json ? "" : json.error().message);
  }
  uint64_t next = kSafetensorsPrefix + header.size();  // byte of the file
  const HeaderReader reader(next, file_bytes, file);
  std::vector<SafeTensor> tensors;
  for (const auto& [name, entry] : json->view().members()) {
    if (name == "__metadata__") continue;
    TRY(SafeTensor tensor, reader.ReadTensor(name, entry));
    tensors.push_back(std::move(tensor));
  }
  std::ranges::sort(tensors, {}, &SafeTensor::offset);
  for (const SafeTensor& tensor : tensors) {
    if (tensor.offset < next) return reader.Bad(tensor.name, "shares bytes with another");
    if (tensor.offset > next) return reader.Bad(tensor.name, "has a gap before it");
    next += tensor.bytes;
  }
  if (next == file_bytes) return tensors;
  return Fail(Errc::kInvalidFile, "{}: {} bytes at the end belong to no tensor; fetch it again",
              file, file_bytes - next);
}

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
