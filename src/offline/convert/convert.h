// SPDX-License-Identifier: MIT
// Writes a Hugging Face folder of a Switch Transformers model as a GGUF, with little memory: a few
// pieces of a tensor at a time, below 300 MB in all. docs/switch-format.md describes the file.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/output_path.h"
#include "base/result.h"

namespace moestro {

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
