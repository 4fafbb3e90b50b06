// SPDX-License-Identifier: MIT
// Writes the routed experts of a model at a lower type into a GGUF of their own, without the dense
// tensors, for OpenLowCopies() (model/low_copies.h). docs/low-format.md describes the file.
//
// Tensors have the source's names. Each starts at a multiple of 4 KiB, and with it every expert's
// slice whose size is such a multiple. The bytes are those of ggml_quantize_chunk on the
// dequantised weights, whatever the number of threads. Memory: a few MiB for each thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "offline/weight_types.h"

namespace moestro {

struct QuantizeOptions {
  std::string model;  // GGUF file, or the first shard
  LowTypes types;
  // File of importances (imatrix_file.h); empty: all columns count equally.
  std::string imatrix = {};
  OutputPath path;                  // of the file to write
  uint32_t threads = 1;             // threads that quantise; from 1 on
  bool overwrite = false;           // replace an existing file
  std::string weights_folder = {};  // see FindWeightsId(), whose number the file names
  // Called with the bytes of the source's experts done so far, from the calling thread; may be
  // empty.
  std::function<void(uint64_t done_bytes, uint64_t all_bytes)> progress = {};
};

struct QuantizeReport {
  uint64_t bytes = 0;         // of the file
  uint64_t source_bytes = 0;  // of the model's own experts
  uint32_t layers = 0;        // with experts
  uint32_t experts = 0;       // of a layer
  uint64_t slices = 0;
  uint64_t aligned_slices = 0;  // start at a multiple of 4 KiB
  // [layer with experts]: experts without importances, see ImatrixFile::Read(); empty without
  // importances.
  std::vector<uint32_t> unvisited;
};

// The file has its name when this returns, or no file exists. Errors: those of ModelFile::Open();
// kUsage without a path; kInvalidRequest for types that cannot be: rows are no whole number of
// blocks (names a type that fits), importances are needed, gate and up lie in one tensor but get
// two types, nothing becomes smaller; those of ImatrixFile; kInvalidFile for weights that are not
// numbers; kIo: the output is the model, exists, does not fit the disk, or the disk fails.
// REQUIRES: threads > 0.
Result<QuantizeReport> WriteLowCopies(const QuantizeOptions& options);

}  // namespace moestro
