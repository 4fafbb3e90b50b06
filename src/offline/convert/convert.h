// SPDX-License-Identifier: MIT
// Writes a Hugging Face folder of a Switch Transformers model as a GGUF, with little memory: a few
// pieces of a tensor at a time, below 300 MB in all. docs/switch-format.md describes the file.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "offline/convert/safetensors.h"
#include "offline/convert/switch_keys.h"

namespace moestro {

// Plans the tensors of a Switch Transformers GGUF, and the tensors of a folder that they are made
// of: docs/switch-format.md. Pure functions.

// A tensor of the folder.
struct NamedTensor {
  std::string name;
  StoredTensor stored;
};

// A tensor of the GGUF.
struct ConvertedTensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::vector<int64_t> ne;           // a row first
  std::vector<NamedTensor> sources;  // one; for a layer's experts one each, by rising id

  int64_t width() const { return ne[0]; }
  // Rows of each source.
  uint64_t rows() const { return ne.size() < 2 ? 1 : static_cast<uint64_t>(ne[1]); }
  uint64_t source_bytes() const { return ggml_row_size(type, width()) * rows(); }
  uint64_t bytes() const { return source_bytes() * sources.size(); }
};

struct SwitchTensors {
  std::vector<ConvertedTensor> tensors;  // in file order
  // Two copies of one tensor, of one type and shape. The file has one, so they must be equal.
  std::vector<std::pair<NamedTensor, NamedTensor>> copies;
};

// type: of the matrices. kInvalidFile: a tensor is missing, has another shape than the
// configuration requires, or has no place in the file; kInvalidRequest: rows are no whole number of
// the type's blocks.
Result<SwitchTensors> PlanSwitchTensors(const SwitchConfig& config, const FolderWeights& weights,
                                        ggml_type type);

struct ConvertOptions {
  std::string folder;
  OutputPath path;                  // of the file to write
  ggml_type type = GGML_TYPE_Q8_0;  // of the matrices
  uint32_t threads = 1;             // from 1 on; at most 16 are used
  bool overwrite = false;           // replace an existing file
  // Called with the written bytes of the file's tensors, from the calling thread; may be empty.
  std::function<void(uint64_t done_bytes, uint64_t all_bytes)> progress = {};
};

struct ConvertReport {
  uint64_t bytes = 0;         // of the file
  uint64_t source_bytes = 0;  // of the folder's weights
  uint32_t encoder_layers = 0;
  uint32_t decoder_layers = 0;
  uint32_t sparse_layers = 0;  // of both
  uint32_t experts = 0;        // of a sparse layer
  uint32_t vocab = 0;
  bool is_tied = false;
};

// F32, F16, BF16, Q8_0 or Q4_0, in any case. kUsage for others.
Result<ggml_type> FindConvertType(const std::string& name);

// The file has its name when this returns, or no file exists. Errors: those of
// FolderWeights::Open(), ReadSwitchConfig(), PlanSwitchTensors() and ReadSwitchTokenizer();
// kInvalidFile for weights that are not numbers, and for copies of the embedding that differ; kIo:
// the output is in the way, does not fit the disk, or the disk fails. REQUIRES: threads > 0.
Result<ConvertReport> ConvertFolder(const ConvertOptions& options);

}  // namespace moestro
