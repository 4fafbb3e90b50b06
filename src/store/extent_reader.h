// SPDX-License-Identifier: MIT
// Reads parts of files one at a time, past the page cache where the file system allows it: for work
// that goes through a model once. The engine reads by a queue (read_queue.h) instead.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "store/open_files.h"

namespace moestro {

// Bytes that were read, and the memory they lie in.
struct ExtentBytes {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory;
  std::span<const std::byte> bytes;
};

class ExtentReader {
 public:
  // Fails with kIo as OpenFiles::Open() does.
  static Result<ExtentReader> Open(const std::vector<std::string>& paths);

  // Reads `extent`, whose file indexes the paths. Any thread may call this, several at a time.
  // Fails with kIo, naming file and place: a device error, a file that has become shorter.
  Result<ExtentBytes> Read(const Extent& extent) const;

 private:
  ExtentReader(std::vector<std::string> paths, OpenFiles files)
      : paths_(std::move(paths)), files_(std::move(files)) {}

  std::vector<std::string> paths_;
  OpenFiles files_;
};

}  // namespace moestro
