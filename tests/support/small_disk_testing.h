// SPDX-License-Identifier: MIT
// A file system of a few bytes, so that a disk is full when a test wants it to be. Root only.
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/text.h"

namespace moestro {

// Mounted on a folder that exists. Only the thread that makes it, and those that it starts later,
// see it, so nothing is left of it when the process ends, however it does.
class SmallDisk {
 public:
  SmallDisk(const std::filesystem::path& folder, uint64_t bytes)
      : folder_(folder),
        is_there_(unshare(CLONE_NEWNS) == 0 &&
                  mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                  mount("none", folder.c_str(), "tmpfs", 0, Format("size={}", bytes).c_str()) ==
                      0) {}
  ~SmallDisk() {
    if (is_there_) umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // False: this process may not mount.
  bool is_there() const { return is_there_; }

 private:
  std::filesystem::path folder_;
  bool is_there_;
};

}  // namespace moestro
