// SPDX-License-Identifier: MIT
// Standard output, unbuffered, with its errors reported, and small files.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

// REQUIRES: SIGPIPE is ignored. One thread.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}

  // Writes all of `text`. A closed pipe is no error: closed() becomes true and further text is
  // dropped. kIo for any other fault, for example a full disk.
  Status Write(std::string_view text);
  bool closed() const { return closed_; }

 private:
  int fd_;
  bool closed_ = false;
};

// Writes a file with this text. The file appears only when it is complete. kIo.
Status WriteFile(const std::string& path, std::string_view text);

}  // namespace moestro
