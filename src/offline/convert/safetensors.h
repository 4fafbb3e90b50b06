// SPDX-License-Identifier: MIT
// The header of a safetensors file: its tensors, and the places of their bytes. Eight bytes give
// its length, then comes a JSON object, then the tensors' bytes without gaps. Nothing in it is
// trusted. Plain values.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "base/result.h"
#include "core/extent.h"

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

// The weights of a Hugging Face folder: model.safetensors, or shards and their index. Headers are
// read and checked, tensors stay on the disk. Nothing in the folder is trusted, and no pickle
// (pytorch_model.bin) is read. Immutable after Open(); any thread may read it.

struct StoredTensor {
  ggml_type type = GGML_TYPE_F32;  // F32, F16 or BF16
  std::vector<int64_t> shape;      // slowest first
  Extent where;
};

class FolderWeights {
 public:
  using Tensors = std::map<std::string, StoredTensor, std::less<>>;

  // kIo; kInvalidFile: a header is damaged, an index names a file or tensor that does not exist,
  // two shards have the same tensor; kUnsupported: the folder has pickles only, or a type that is
  // not read.
  static Result<FolderWeights> Open(const std::string& folder);

  const Tensors& tensors() const { return tensors_; }
  const StoredTensor* Find(std::string_view name) const;  // nullptr: no such tensor
  const std::vector<std::string>& paths() const {
    return paths_;
  }  // paths of the files; Extent::file is an index into them

 private:
  std::vector<std::string> paths_;
  Tensors tensors_;
};

// The text of a file in the folder; nullopt: no such file. kIo: the file cannot be read, or has
// more than `most` bytes.
Result<std::optional<std::string>> ReadFolderText(const std::string& folder, const char* name,
                                                  size_t most);

// Reads a JSON object of at most `most_values` values. Errors: those of ReadFolderText();
// kInvalidFile: the file is not such an object.
Result<std::optional<Json>> ReadFolderJson(const std::string& folder, const char* name, size_t most,
                                           size_t most_values);

}  // namespace moestro
