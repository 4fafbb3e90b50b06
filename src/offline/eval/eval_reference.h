// SPDX-License-Identifier: MIT
// The exact run's log-probabilities in a file: too many for memory (a vocabulary for each token),
// in F32 as they were computed.
//
// The file: header (magic, version, ReferenceInfo), a row [n_vocab] F32 for each evaluated token,
// checksum. See base/binary_file.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/binary_file.h"
#include "base/output_path.h"
#include "base/result.h"
#include "model/model_file.h"
#include "offline/eval/eval_text.h"

namespace moestro {

// Identity of a reference: its model and its text. A file of another identity is refused.
struct ReferenceInfo {
  uint64_t fingerprint = 0;  // of the model's header
  uint64_t weights = 0;      // model/weights_id.h
  uint64_t token_hash = 0;   // EvalText::Hash()
  uint64_t rows = 0;
  uint32_t n_vocab = 0;
  uint32_t n_ctx = 0;

  uint64_t file_bytes() const;
  // Fills all members but the weights' number, which takes reading.
  static ReferenceInfo Of(const ModelFile& model, const EvalText& text);
};

class ReferenceWriter {
 public:
  // kIo, also when the file system has no room for all of it (names the remedy).
  static Result<ReferenceWriter> Create(const OutputPath& path, const ReferenceInfo& info);
  Status Add(std::span<const float> row);
  // Gives the file its name; a file without its name disappears by itself.
  Status Finish() { return writer_.Finish(); }

 private:
  explicit ReferenceWriter(BinaryWriter writer) : writer_(std::move(writer)) {}

  BinaryWriter writer_;
};

class ReferenceReader {
 public:
  // kIo; kInvalidFile for a damaged file; kInvalidRequest for the file of another model or text
  // than `info`.
  static Result<ReferenceReader> Open(const std::string& path, const ReferenceInfo& info);
  // The row at `index`, valid until the next call. REQUIRES: index < ReferenceInfo::rows.
  Result<std::span<const float>> Row(uint64_t index);

 private:
  ReferenceReader(InputFile file, uint32_t n_vocab) : file_(std::move(file)), row_(n_vocab) {}

  InputFile file_;
  std::vector<float> row_;
};

// Folder for large temporary files: `asked`, or else the folder of `text`, or the current folder if
// that one cannot be written. kInvalidRequest when `asked` is empty and files in the folder would
// lie in memory; kIo for a folder that does not exist or cannot be written.
Result<std::string> ScratchFolder(const std::string& asked, const std::string& text);

}  // namespace moestro
