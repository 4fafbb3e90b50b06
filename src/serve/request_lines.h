// SPDX-License-Identifier: MIT
// A JSON line for each request, where a program's messages go. The log never holds up the server
// and never ends it: a line that is not taken (a full disk, a reader that stands still or is gone)
// is left out, and the next one says how many were.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <mutex>

#include "serve/request_record.h"

namespace moestro {

class RequestLines {
 public:
  // `fd`: open as long as this lives. SIGPIPE is ignored by the program.
  explicit RequestLines(int fd) : fd_(fd) {}

  void Write(const RequestRecord& record);

 private:
  const int fd_;
  std::mutex mutex_;
  uint64_t lost_ = 0;    // lines since the last that was written
  bool is_cut_ = false;  // the last one was written in part
};

}  // namespace moestro
