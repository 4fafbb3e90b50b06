// SPDX-License-Identifier: MIT
#include "model/fingerprint.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/hash.h"

namespace moestro {
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
