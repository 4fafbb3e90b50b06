// SPDX-License-Identifier: MIT
// A trace as a file; docs/trace-format.md describes every byte. Thread rule: none, calls share
// nothing but the file system.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/binary_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "trace/trace.h"

namespace moestro {

// Writes a trace while it is recorded, with memory for a window of the file only. The file has its
// name only when Finish() has succeeded; without it nothing is left behind.
class TraceWriter {
 public:
  // `tokens`: the number of tokens to come. Errors: those of Trace::Create() and WriteTrace().
  static Result<TraceWriter> Create(const OutputPath& path, TraceInfo info, uint64_t tokens);
  // Writes a trace behind the bytes that a file has already; TraceBytes() more follow. Errors:
  // those of Trace::Create().
  static Result<TraceWriter> Create(BinaryWriter file, TraceInfo info, uint64_t tokens);

  // Errors: those of Trace::Add(), kIo. REQUIRES: fewer than `tokens` were added.
  Status Add(const TraceToken& token);
  // REQUIRES: all tokens were added.
  Status Finish();

 private:
  TraceWriter(Trace shape, BinaryWriter file, uint64_t tokens);
  Status Flush();

  Trace shape_;  // without tokens
  BinaryWriter file_;
  std::string bytes_;  // not written yet
  uint64_t left_;      // tokens to come
};

// Bytes of a trace in a file, without the checksum. REQUIRES: the counts are in range.
uint64_t TraceBytes(const TraceInfo& info, uint64_t tokens);
// Format of a trace's file, for InputFile.
const FileFormat& TraceFormat();

// Reads a trace token by token, with memory for a window of the file only.
class TraceReader {
 public:
  // Errors: those of ReadTrace(), except those of the checksum, which is not checked.
  static Result<TraceReader> Open(InputFile file);

  const TraceInfo& info() const { return info_; }
  uint64_t tokens() const { return tokens_; }
  // Passes every token to the sink. An error of the sink with kIo is returned; any other error
  // means a damaged file, because Trace::Check() refused a token. Errors: kInvalidFile, naming file
  // and token; kIo.
  Status ForEach(const TraceSink& sink) const;

 private:
  TraceReader(InputFile file, TraceInfo info, uint64_t tokens, uint64_t tokens_begin)
      : file_(std::move(file)),
        info_(std::move(info)),
        tokens_(tokens),
        tokens_begin_(tokens_begin) {}

  InputFile file_;
  TraceInfo info_;
  uint64_t tokens_;
  uint64_t tokens_begin_;
};

// `path` holds the old file or the whole new one, never a part. Weights lose precision: they are
// clamped to 0..1 and kept in steps of 1/65535. kIo, naming the file and the reason (disk full, no
// such folder, `path` is something else than a file); nothing is left behind then.
Status WriteTrace(const OutputPath& path, const Trace& trace);

// Trusts nothing in the file: sizes are checked against the file's before memory is allocated, the
// checksum before a token is read. kIo: cannot be read; kUnsupported: a newer format; kInvalidFile:
// not a trace, cut short, or damaged. The message names the file and the remedy.
Result<Trace> ReadTrace(const std::string& path);

}  // namespace moestro
