// SPDX-License-Identifier: MIT
// The weights of a Hugging Face folder: model.safetensors, or shards and their index. Headers are
// read and checked, tensors stay on the disk. Nothing in the folder is trusted, and no pickle
// (pytorch_model.bin) is read. Immutable after Open(); any thread may read it.
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
#include "base/result.h"
#include "core/extent.h"

namespace moestro {

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
