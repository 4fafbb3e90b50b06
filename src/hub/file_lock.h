// SPDX-License-Identifier: MIT
// A lock between processes as the hub's own client takes it: flock on a file of its own, which is
// not removed. The destructor releases the lock, and the kernel does when the process ends.
// Move-only. Where a file system has no locks, a socket's name stands for the file's: it keeps
// processes of this machine away, not those of others.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "hub/shared_folder.h"

namespace moestro {

class FileLock {
 public:
  // nullopt: another process holds the lock. kIo: the file cannot be made.
  static Result<std::optional<FileLock>> Try(const SharedFolder& folder, const std::string& name);

  bool is_of_this_machine() const { return is_of_this_machine_; }

 private:
  FileLock(UniqueFd fd, bool is_of_this_machine)
      : fd_(std::move(fd)), is_of_this_machine_(is_of_this_machine) {}
  UniqueFd fd_;
  bool is_of_this_machine_;
};

}  // namespace moestro
