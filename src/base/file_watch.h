// SPDX-License-Identifier: MIT
// Checks that files in use are still those that were opened. A file that is written in place, or
// another one under its name, ends the work: bytes of two files must not meet in one result.
//
// Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_stamp.h"
#include "base/result.h"

namespace moestro {

struct WatchedFile {
  std::string path;
  FileStamp stamp;  // at opening
};

class FileWatch {
 public:
  FileWatch() = default;  // without files
  // `clock` must outlive this.
  FileWatch(std::vector<WatchedFile> files, const Clock& clock)
      : files_(std::move(files)), clock_(&clock) {}

  // Checks now: kInvalidFile names a file that has changed. A file that has only lost its name is
  // unchanged.
  Status Look();
  // Looks if the last look was a second ago; costs one reading of the clock otherwise.
  Status LookNowAndThen();

 private:
  std::vector<WatchedFile> files_;
  const Clock* clock_ = nullptr;
  double last_look_ = 0.0;
};

}  // namespace moestro
