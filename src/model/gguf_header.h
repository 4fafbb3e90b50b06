// SPDX-License-Identifier: MIT
// The header of one GGUF v3 file: metadata and tensor directory, checked in every number. Memory
// stays proportional to the kept values; long arrays (vocabularies) are walked over, not stored.
//
// gguf.h's reader is not used, since it is no defence against hostile files (sizes are trusted up
// to 1 GiB each, names are compared pairwise, getters abort on an unexpected type) and keeps every
// token of a vocabulary in memory. A full check would have to come first, and after such a check
// every value has been read.
#pragma once

#include <gguf.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "model/byte_source.h"

namespace moestro {

struct MetaValue {
  gguf_type type = GGUF_TYPE_COUNT;  // type of the elements, if an array; never GGUF_TYPE_ARRAY
  bool is_array = false;
  uint64_t count = 1;
  // A string's text, or the little-endian bytes of numbers. Empty for arrays of strings and for
  // arrays of more than kKeptElements.
  std::string raw;
  uint64_t offset = 0;  // arrays: place of the first element in the file

  static constexpr uint64_t kKeptElements = 4096;

  bool is_integer() const;
  // Element `i` of `raw`. nullopt: not an integer, or negative.
  std::optional<uint64_t> UintAt(uint64_t i) const;
  // nullopt: neither an integer nor a float.
  std::optional<double> FloatAt(uint64_t i) const;
};

struct TensorRecord {
  std::string name;  // 1 to 63 bytes
  ggml_type type = GGML_TYPE_F32;
  std::array<int64_t, 4> ne{1, 1, 1, 1};  // all positive, ne[0] a multiple of the type's block
  uint64_t offset = 0;                    // in the file
  uint64_t bytes = 0;                     // offset + bytes lie inside the file
};

struct GgufHeader {
  std::unordered_map<std::string, MetaValue> metadata;
  std::vector<TensorRecord> tensors;  // in file order, names unique
  FileStamp stamp;                    // at opening
};

// Reads only the header's bytes; `bytes` is the source of one file. Fails with kIo, kInvalidFile
// (damaged, truncated, absurd) or kUnsupported (GGUF v1/v2, big endian); messages name the file,
// the place and the value.
Result<GgufHeader> ReadGgufHeader(std::unique_ptr<ByteSource> bytes);

}  // namespace moestro
