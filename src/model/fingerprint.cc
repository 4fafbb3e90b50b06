// SPDX-License-Identifier: MIT
#include "model/fingerprint.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
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

}  // namespace moestro
