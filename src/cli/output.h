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

  // Writes all of `text`. A closed pipe or terminal is no error: closed() becomes true and further
  // text is dropped. kIo for any other fault, for example a full disk; then, too, nothing more is
  // written.
  Status Write(std::string_view text);
  bool closed() const { return closed_; }
  const Status& status() const { return status_; }  // the fault, if there was one

 private:
  int fd_;
  bool closed_ = false;
  Status status_;
};

// Writes a file with this text. The file appears only when it is complete. kIo.
Status WriteFile(const std::string& path, std::string_view text);

}  // namespace moestro
