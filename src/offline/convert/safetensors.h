// SPDX-License-Identifier: MIT
// The header of a safetensors file: its tensors, and the places of their bytes. Eight bytes give
// its length, then comes a JSON object, then the tensors' bytes without gaps. Nothing in it is
// trusted. Plain values.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace moestro {

inline constexpr uint64_t kSafetensorsPrefix = 8;                   // bytes of the length
inline constexpr uint64_t kMostSafetensorsHeader = 16 * kMiB;       // of JSON
inline constexpr size_t kMostSafetensorsValues = size_t{1} << 20U;  // values in the JSON

struct SafeTensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;   // F32, F16 or BF16
  std::vector<int64_t> shape = {};  // slowest first, as in the file; at most 4 sizes, all positive
  uint64_t offset = 0;              // in the file
  uint64_t bytes = 0;
};

// The length of the JSON, from the first eight bytes of a file of `file_bytes`. kInvalidFile: the
// file is too short for the JSON, or the JSON is beyond the limit. `file`: the file's name in
// messages.
Result<uint64_t> SafetensorsHeaderBytes(std::string_view first, uint64_t file_bytes,
                                        const std::string& file);

// The tensors of the JSON `header`, in the order of their bytes. They fill the rest of the file
// exactly. kInvalidFile: they do not, or the JSON is malformed; kUnsupported: a type that is not
// read.
// REQUIRES: the header has the length that SafetensorsHeaderBytes() returned.
Result<std::vector<SafeTensor>> ParseSafetensors(std::string_view header, uint64_t file_bytes,
                                                 const std::string& file);

}  // namespace moestro
