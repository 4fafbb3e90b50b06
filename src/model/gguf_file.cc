// SPDX-License-Identifier: MIT
#include "model/gguf_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr uint64_t kMaxShards = 1024;

const char* TypeText(const MetaValue& value) {
  return value.is_array ? "array" : gguf_type_name(value.type);
}

Result<uint64_t> HeaderUint(const std::string& path, const GgufHeader& header,
                            const std::string& key) {
  const auto found = header.metadata.find(key);
  if (found == header.metadata.end() || found->second.is_array) {
    return Fail(Errc::kInvalidFile, "{}: shard without a number '{}'; fetch all shards again", path,
                key);
  }
  if (const auto value = found->second.UintAt(0)) return *value;
  return Fail(Errc::kInvalidFile, "{}: '{}' is no valid number; fetch all shards again", path, key);
}

// The ending of shard `index` (from 0) of `count`.
std::string ShardSuffix(uint64_t index, uint64_t count) {
  return Format("-{:05}-of-{:05}.gguf", index + 1, count);
}

Result<GgufHeader> ReadHeader(const std::string& path, const OpenBytes& open) {
  TRY(std::unique_ptr<ByteSource> bytes, open(path));
  return ReadGgufHeader(std::move(bytes));
}

// Checks that the shard's own number and count are those that its place demands.
Status CheckShardNumbers(const std::string& path, const GgufHeader& header, uint64_t index,
                         uint64_t count) {
  TRY(const uint64_t number, HeaderUint(path, header, "split.no"));
  TRY(const uint64_t of, HeaderUint(path, header, "split.count"));
  if (number == index && of == count) return {};
  return Fail(
      Errc::kInvalidFile,
      "{}: says it is shard {} of {}, expected {} of {}; shards of different models are mixed",
      path, number + 1, of, index + 1, count);
}

}  // namespace

Result<GgufFile> GgufFile::Open(const std::string& path, const OpenBytes& open) {
  GgufFile file;
  TRY(GgufHeader header, ReadHeader(path, open));
  uint64_t shards = 1;
  uint64_t tensors = header.tensors.size();
  if (header.metadata.contains("split.count")) {
    TRY(shards, HeaderUint(path, header, "split.count"));
    if (shards > kMaxShards) {
      return Fail(Errc::kInvalidFile, "{}: split.count is {}, at most {} make sense", path, shards,
                  kMaxShards);
    }
  }
  if (shards > 1) {
    TRY(const uint64_t number, HeaderUint(path, header, "split.no"));
    if (number != 0) {
      return Fail(Errc::kInvalidFile, "{}: this is shard {} of {}; give the first one, ...{}", path,
                  number + 1, shards, ShardSuffix(0, shards));
    }
    TRY(tensors, HeaderUint(path, header, "split.tensors.count"));
  }
  file.metadata_ = std::move(header.metadata);
  header.metadata.clear();
  TRY_STATUS(file.AddShard(path, std::move(header)));
  if (shards > 1) TRY_STATUS(file.OpenOtherShards(shards, open));
  if (file.tensors_.size() != tensors) {
    return Fail(Errc::kInvalidFile, "{}: {} tensors in {} shards, split.tensors.count says {}",
                path, file.tensors_.size(), shards, tensors);
  }
  file.index_.reserve(file.tensors_.size());
  for (size_t i = 0; i < file.tensors_.size(); ++i) {
    const auto [at, is_new] = file.index_.emplace(file.tensors_[i].name, i);
    if (!is_new) {
      return Fail(Errc::kInvalidFile, "{}: tensor '{}' occurs in two shards", path,
                  Printable(at->first));
    }
  }
  return file;
}

Status GgufFile::AddShard(const std::string& path, GgufHeader header) {
  constexpr size_t kMaxTensorsOfAllShards = 65536;
  if (tensors_.size() + header.tensors.size() > kMaxTensorsOfAllShards) {
    return Fail(Errc::kInvalidFile, "{}: more than {} tensors in all shards", path,
                kMaxTensorsOfAllShards);
  }
  const auto shard = static_cast<uint32_t>(paths_.size());
  paths_.push_back(path);
  stamps_.push_back(header.stamp);
  for (TensorRecord& record : header.tensors) {
    tensors_.push_back(
        {.name = std::move(record.name),
         .type = record.type,
         .ne = record.ne,
         .extent = {.file = shard, .offset = record.offset, .length = record.bytes}});
  }
  return {};
}

Status GgufFile::OpenOtherShards(uint64_t count, const OpenBytes& open) {
  const std::string first = paths_.front();
  const std::string suffix = ShardSuffix(0, count);
  if (!first.ends_with(suffix)) {
    return Fail(
        Errc::kInvalidFile,
        "{}: first of {} shards, but its name does not end in {}; the other shards are found by "
        "name, so rename them back",
        first, count, suffix);
  }
  const std::string prefix = first.substr(0, first.size() - suffix.size());
  for (uint64_t i = 1; i < count; ++i) {
    const std::string path = prefix + ShardSuffix(i, count);
    auto header = ReadHeader(path, open);
    if (!header && header.error().code == Errc::kIo) {
      return Fail(Errc::kIo, "shard {} of {} of {}: {}; put all shards into one folder", i + 1,
                  count, first, header.error().message);
    }
    if (!header) return std::unexpected(std::move(header).error());
    TRY_STATUS(CheckShardNumbers(path, *header, i, count));
    TRY_STATUS(AddShard(path, *std::move(header)));
  }
  return {};
}

void GgufFile::AddTo(std::vector<WatchedFile>& files) const {
  for (size_t i = 0; i < paths_.size(); ++i) {
    files.push_back({.path = paths_[i], .stamp = stamps_[i]});
  }
}

uint64_t GgufFile::file_bytes() const {
  uint64_t bytes = 0;
  for (const FileStamp& stamp : stamps_) bytes += stamp.size;
  return bytes;
}

const TensorInfo* GgufFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const MetaValue* GgufFile::FindValue(const std::string& key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

std::vector<std::string> GgufFile::metadata_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : metadata_) keys.push_back(key);
  return keys;
}

Result<std::optional<uint64_t>> GgufFile::FindUint(const std::string& key) const {
  const MetaValue* value = FindValue(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array && value->is_integer()) {
    if (const auto number = value->UintAt(0)) return number;
    return Fail(Errc::kInvalidFile, "{}: '{}' is negative", paths_.front(), key);
  }
  return Fail(Errc::kInvalidFile, "{}: '{}' is of type {}, expected a whole number", paths_.front(),
              key, TypeText(*value));
}

Result<std::optional<double>> GgufFile::FindFloat(const std::string& key) const {
  const MetaValue* value = FindValue(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array) {
    if (const auto number = value->FloatAt(0)) return number;
  }
  return Fail(Errc::kInvalidFile, "{}: '{}' is of type {}, expected a number", paths_.front(), key,
              TypeText(*value));
}

Result<std::optional<bool>> GgufFile::FindBool(const std::string& key) const {
  const MetaValue* value = FindValue(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array && value->type == GGUF_TYPE_BOOL) return value->raw[0] != 0;
  return Fail(Errc::kInvalidFile, "{}: '{}' is of type {}, expected true or false", paths_.front(),
              key, TypeText(*value));
}

Result<std::optional<std::string>> GgufFile::FindString(const std::string& key) const {
  const MetaValue* value = FindValue(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array && value->type == GGUF_TYPE_STRING) return value->raw;
  return Fail(Errc::kInvalidFile, "{}: '{}' is of type {}, expected text", paths_.front(), key,
              TypeText(*value));
}

Result<std::optional<uint64_t>> GgufFile::FindArrayLength(const std::string& key) const {
  const MetaValue* value = FindValue(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array) return value->count;
  return Fail(Errc::kInvalidFile, "{}: '{}' is of type {}, expected an array", paths_.front(), key,
              TypeText(*value));
}

Result<std::optional<uint64_t>> GgufFile::FindUniformUint(const std::string& key) const {
  const MetaValue* value = FindValue(key);
  if (value == nullptr || !value->is_array) return FindUint(key);
  const auto first = value->UintAt(0);
  if (!first) {
    return Fail(Errc::kInvalidFile, "{}: '{}' is an array of {} {} values, expected whole numbers",
                paths_.front(), key, value->count, gguf_type_name(value->type));
  }
  for (uint64_t i = 1; i < value->count; ++i) {
    const auto other = value->UintAt(i);
    if (other == first) continue;
    return Fail(Errc::kUnsupported,
                "{}: '{}' differs between layers (first {}, layer {} another value)",
                paths_.front(), key, *first, i);
  }
  return first;
}

Result<std::vector<uint64_t>> GgufFile::ArrayOfUints(const std::string& key, uint64_t count) const {
  const MetaValue* value = FindValue(key);
  CHECK(value != nullptr && value->is_array);
  if (value->count != count) {
    return Fail(Errc::kInvalidFile, "{}: '{}' has {} values for {} layers", paths_.front(), key,
                value->count, count);
  }
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < count; ++i) {
    std::optional<uint64_t> number = value->UintAt(i);
    if (value->type == GGUF_TYPE_BOOL && i < value->raw.size()) number = value->raw[i] != 0;
    if (!number) {
      return Fail(Errc::kInvalidFile,
                  "{}: '{}' is an array of {} {} values, expected whole numbers", paths_.front(),
                  key, value->count, gguf_type_name(value->type));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

namespace {

void AddText(Fnv1a& hash, std::string_view text) {
  hash.Add(text);
  hash.AddNumber(uint64_t{text.size()});  // so that "ab","c" is not "a","bc"
}

}  // namespace

uint64_t Fingerprint(const GgufFile& file) {
  Fnv1a hash;
  std::vector<std::string> keys = file.metadata_keys();
  std::erase_if(keys, [](const std::string& key) { return key.starts_with("split."); });
  std::ranges::sort(keys);
  for (const std::string& key : keys) {
    const MetaValue& value = *file.FindValue(key);
    AddText(hash, key);
    hash.AddNumber(static_cast<uint64_t>(value.type));
    hash.AddNumber(uint64_t{value.count});
    AddText(hash, value.raw);
  }
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : file.tensors()) tensors.push_back(&tensor);
  std::ranges::sort(tensors, {}, &TensorInfo::name);
  for (const TensorInfo* tensor : tensors) {
    AddText(hash, tensor->name);
    hash.AddNumber(static_cast<uint64_t>(tensor->type));
    for (const int64_t n : tensor->ne) hash.AddNumber(static_cast<uint64_t>(n));
  }
  return hash.value() != 0 ? hash.value() : 1;
}

std::optional<uint64_t> ParseFingerprint(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.end()) return std::nullopt;
  return value;
}

}  // namespace moestro
