// SPDX-License-Identifier: MIT
// A trace as a file; docs/trace-format.md describes every byte. Thread rule: none, calls share
// nothing but the file system.
#pragma once

#include <string>

#include "base/result.h"
#include "trace/trace.h"

namespace moestro {

// `path` holds the old file or the whole new one, never a part. Weights lose precision: they are
// clamped to 0..1 and kept in steps of 1/65535. kIo, naming the file and the reason (disk full, no
// such folder, `path` is something else than a file); nothing is left behind then.
Status WriteTrace(const std::string& path, const Trace& trace);

// Nothing in the file is trusted: sizes are checked against the file's before memory is asked for,
// the checksum before a token is looked at. kIo: cannot be read; kUnsupported: a newer format;
// kInvalidFile: not a trace, cut short, or damaged. The message names the file and the remedy.
Result<Trace> ReadTrace(const std::string& path);

}  // namespace moestro
