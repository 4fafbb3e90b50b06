// SPDX-License-Identifier: MIT
// Writes a fitted model: the source with each expert at one of two widths. docs/fitted-format.md
// describes the file, model/fitted.h reads it.
//
// Dense tensors are copied byte for byte, and so are experts at the source's own width; others are
// what WriteLowCopies() would make of them. Memory: a few MiB for each thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/output_path.h"
#include "base/result.h"
#include "offline/quantize/low_types.h"

namespace moestro {

// nullopt: as the source has it, whatever types its layers have.
using Width = std::optional<LowTypes>;
std::string WidthText(const Width& width);  // "source" or as LowTypes::text()

struct FittedOptions {
  std::string model;  // the source: GGUF file, or the first shard
  Width high;
  Width low;
  std::string widths;        // as FitHeader::widths
  std::string imatrix = {};  // importances (imatrix_file.h); empty: every column counts the same
  OutputPath path;           // of the file to write
  uint32_t threads = 1;      // that quantise; from 1 on
  bool overwrite = false;    // replace an existing file
  std::string weights_folder = {};  // see FindWeightsId(), whose number the file names
  // Called with the written bytes of the file, from the calling thread; may be empty.
  std::function<void(uint64_t done_bytes, uint64_t all_bytes)> progress = {};
};

// Returns the file's bytes. The file has its name when this returns, or no file exists. Errors:
// those of ModelFile::Open(), of CheckFits() and of ImatrixFile; kInvalidRequest for a source that
// is a fitted model; kInvalidFile for weights that are not numbers; kIo: the output is the model,
// exists, does not fit the disk, or the disk fails. REQUIRES: threads > 0; a width for each expert.
Result<uint64_t> WriteFitted(const FittedOptions& options);

}  // namespace moestro
