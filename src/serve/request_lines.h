// SPDX-License-Identifier: MIT
// Writes a JSON line for each request to the log. The log never holds up the server and never ends
// it. A line that cannot be written (a full disk, a reader that stands still or is gone) is left
// out, and the next line counts the lost ones.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <mutex>

#include "serve/request_record.h"

namespace moestro {

class RequestLines {
 public:
  // `fd` must stay open as long as this lives. REQUIRES: the program ignores SIGPIPE.
  explicit RequestLines(int fd) : fd_(fd) {}

  void Write(const RequestRecord& record);

 private:
  const int fd_;
  std::mutex mutex_;
  uint64_t lost_ = 0;    // lines left out since the last line that was written
  bool is_cut_ = false;  // the last line was written in part
};

}  // namespace moestro
