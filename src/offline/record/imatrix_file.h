// SPDX-License-Identifier: MIT
// Importance matrices in llama.cpp's GGUF format: the sizes of each weight matrix's inputs on some
// text, column by column, for quantisers to spend bits where they matter. docs/imatrix.md describes
// the file. The older .dat format is not read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "model/gguf_file.h"
#include "store/open_files.h"

namespace moestro {

// Sums over the inputs of one weight tensor. Views; the values have another owner.
struct ImatrixEntry {
  std::string name;                  // the weight tensor's
  uint32_t n_in = 0;                 // values of an input
  std::span<const double> sums;      // [expert][n_in]: of the inputs' squares; F32 in the file
  std::span<const uint64_t> counts;  // [expert]: how many inputs; F32 in the file
};

struct ImatrixInfo {
  std::vector<std::string> datasets;  // names of the texts
  uint32_t chunk_count = 0;           // sequences that were evaluated
  uint32_t chunk_size = 0;            // most tokens of one
};

// The file appears under its name when it is complete, replacing another. Errors: kIo.
Status WriteImatrix(const OutputPath& path, const ImatrixInfo& info,
                    std::span<const ImatrixEntry> entries);

// Importances of a file for the tensor of some experts.
struct Importances {
  std::vector<float> columns;  // [expert][n_in], each above 0
  uint32_t unvisited = 0;      // experts that no input came to
};

// Importances of weights in a file. Thread rule: any thread may read.
class ImatrixFile {
 public:
  // Errors: those of GgufFile::Open(); kInvalidFile for a GGUF that is something else.
  static Result<ImatrixFile> Open(const std::string& path);

  const std::string& path() const { return gguf_.paths().front(); }

  // Importances for ggml_quantize_chunk: the mean of an expert's squared inputs, times a power of
  // four that makes an expert's mean about one, which changes no quantised bit. Columns that were
  // nearly always zero count a millionth of the mean. An expert that was never visited has the mean
  // of all inputs of the tensor, or ones if the tensor had no inputs. kInvalidFile: the file lacks
  // the tensor, has other sizes (both are in the message: the file is another model's) or holds
  // values that are not sums; kIo.
  Result<Importances> Read(const std::string& tensor, uint32_t n_in, uint32_t n_experts) const;

  // Hash of all tensors' names and values. kIo.
  Result<uint64_t> Hash() const;

 private:
  ImatrixFile(GgufFile gguf, ExtentReader reader)
      : gguf_(std::move(gguf)), reader_(std::move(reader)) {}
  Result<std::vector<float>> ReadValues(const std::string& name, uint32_t width,
                                        uint32_t rows) const;

  GgufFile gguf_;
  ExtentReader reader_;
};

}  // namespace moestro
