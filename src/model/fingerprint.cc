// SPDX-License-Identifier: MIT
#include "model/fingerprint.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {
namespace {

// FNV-1a, 64 bits: offset basis and prime as published by Fowler, Noll and Vo.
class Hash {
 public:
  void Add(std::string_view bytes) {
    for (const char byte : bytes) Mix(static_cast<unsigned char>(byte));
    Add(bytes.size());  // so that "ab","c" is not "a","bc"
  }
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) Mix(static_cast<unsigned char>(number >> shift));
  }
  uint64_t value() const { return value_; }

 private:
  void Mix(unsigned char byte) {
    value_ ^= byte;
    value_ *= 0x100000001B3U;
  }
  uint64_t value_ = 0xCBF29CE484222325U;
};

}  // namespace

uint64_t Fingerprint(const GgufFile& file) {
  Hash hash;
  std::vector<std::string> keys = file.metadata_keys();
  std::erase_if(keys, [](const std::string& key) { return key.starts_with("split."); });
  std::ranges::sort(keys);
  for (const std::string& key : keys) {
    const MetaValue& value = *file.FindValue(key);
    hash.Add(key);
    hash.Add(static_cast<uint64_t>(value.type));
    hash.Add(value.count);
    hash.Add(value.raw);
  }
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : file.tensors()) tensors.push_back(&tensor);
  std::ranges::sort(tensors, {}, &TensorInfo::name);
  for (const TensorInfo* tensor : tensors) {
    hash.Add(tensor->name);
    hash.Add(static_cast<uint64_t>(tensor->type));
    for (const int64_t n : tensor->ne) hash.Add(static_cast<uint64_t>(n));
  }
  return hash.value() != 0 ? hash.value() : 1;
}

}  // namespace moestro
