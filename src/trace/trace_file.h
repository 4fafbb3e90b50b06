// SPDX-License-Identifier: MIT
// A trace as a file; docs/trace-format.md describes every byte. Thread rule: none, calls share
// nothing but the file system.
#pragma once

#include <cstdint>
#include <string>

#include "base/binary_file.h"
#include "base/result.h"
#include "trace/trace.h"

namespace moestro {

// Writes a trace while it is recorded: memory for a window of the file is all it takes. The file
// has its name only when Finish() has succeeded; without it nothing is left behind.
class TraceWriter {
 public:
  // `tokens` is how many there will be. Errors: those of Trace::Create() and WriteTrace().
  static Result<TraceWriter> Create(const std::string& path, TraceInfo info, uint64_t tokens);

  // Errors: what Trace::Add() says, kIo. REQUIRES: fewer than `tokens` were added.
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

// `path` holds the old file or the whole new one, never a part. Weights lose precision: they are
// clamped to 0..1 and kept in steps of 1/65535. kIo, naming the file and the reason (disk full, no
// such folder, `path` is something else than a file); nothing is left behind then.
Status WriteTrace(const std::string& path, const Trace& trace);

// Nothing in the file is trusted: sizes are checked against the file's before memory is asked for,
// the checksum before a token is looked at. kIo: cannot be read; kUnsupported: a newer format;
// kInvalidFile: not a trace, cut short, or damaged. The message names the file and the remedy.
Result<Trace> ReadTrace(const std::string& path);

}  // namespace moestro
