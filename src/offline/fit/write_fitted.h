// SPDX-License-Identifier: MIT
// Writes a fitted model: the source with each expert at one of two widths. docs/fitted-format.md
// describes the file, model/expert_tensors.h reads it.
//
// Dense tensors are copied byte for byte, and so are experts at the source's own width; others have
// the bytes that WriteLowCopies() would write. Memory: a few MiB for each thread.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "model/model_file.h"
#include "offline/weight_types.h"

namespace moestro {

// nullopt: the source's own types, which may differ by layer.
using Width = std::optional<LowTypes>;
std::string WidthText(const Width& width);  // "source" or as LowTypes::text()

struct FittedOptions {
  std::string model;  // the source: GGUF file, or the first shard
  Width high;
  Width low;
  std::string widths;  // as FitHeader::widths
  // File of importances (imatrix_file.h); empty: all columns count equally.
  std::string imatrix = {};
  OutputPath path;                  // of the file to write
  uint32_t threads = 1;             // threads that quantise; from 1 on
  bool overwrite = false;           // replace an existing file
  std::string weights_folder = {};  // see FindWeightsId(), whose number the file names
  // Called with the written bytes of the file, from the calling thread; may be empty.
  std::function<void(uint64_t done_bytes, uint64_t all_bytes)> progress = {};
};

// Returns the file's bytes. The file has its name when this returns, or no file exists. Errors:
// those of ModelFile::Open(), of CheckFits() and of ImatrixFile; kInvalidRequest for a source that
// is a fitted model; kInvalidFile for weights that are not numbers; kIo: the output is the model,
// exists, does not fit the disk, or the disk fails. REQUIRES: threads > 0; a width for each expert.
Result<uint64_t> WriteFitted(const FittedOptions& options);

// Widths that a model's experts may have, and the distance of weights at two of them.

struct SizedWidth {
  Width width;         // nullopt: the source's own
  uint64_t bytes = 0;  // bytes of all experts at the width
};

// The source's own width and those of `types` that take less, largest first; where rows do not fit
// a type, the next one that does. kInvalidRequest when none takes less.
Result<std::vector<SizedWidth>> PlanWidths(const ModelFile& model,
                                           std::span<const ggml_type> types);

// For each expert ([layer][expert]): the length of the difference between its weights in two files,
// as a share of their length. Reads both files whole. Errors: those of reading.
Result<std::vector<double>> WidthErrors(const std::string& high, const std::string& low);

}  // namespace moestro
