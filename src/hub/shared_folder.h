// SPDX-License-Identifier: MIT
// A folder of the cache that tools and users share. A user who may write into the cache can put a
// link where a folder or a file is expected, and root fetches into the caches of services: so the
// way to a folder is walked step by step, and calls in the folder use its open descriptor.
//
// Move-only. Thread rule: none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/input_file.h"
#include "base/output_file.h"
#include "base/result.h"

namespace moestro {

class SharedFolder {
 public:
  enum class Way : uint8_t {
    kMake,     // makes folders that are missing; follows links of this user and of root
    kNoLinks,  // follows no links and makes nothing, so that a removal stays below `path`
  };
  // `path`: below `cache`, which itself may be a link. kIo: names the folder, or the link that is
  // not followed, and what to do.
  static Result<SharedFolder> Open(const std::string& cache, const std::string& path, Way way);

  const std::string& path() const { return path_; }  // for messages
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }

  // A path for functions that take paths, through the open folder's descriptor.
  std::string WayTo(const std::string& name) const;
  // Output path of a file in this folder.
  OutputPath Output(const std::string& name) const;
  // Opens a file for reading and writing, or makes it. kIo: the name is a link, has a second name
  // elsewhere, or cannot be made.
  Result<UniqueFd> OpenFile(const std::string& name, mode_t mode) const;
  // Whether `name` still is the open file.
  bool Names(const std::string& name, int file) const;
  // False: errno has the reason.
  bool Rename(const std::string& from, const std::string& to) const;
  bool MakeLink(const std::string& name, const std::string& target) const;
  // True also if `name` does not exist.
  bool Remove(const std::string& name) const;

 private:
  SharedFolder(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
};

// A lock between processes as the hub's own client takes it: flock on a file of its own, which is
// not removed. The destructor releases the lock, and the kernel does when the process ends.
// Move-only. Where a file system has no locks, a socket's name stands for the file's: it keeps
// processes of this machine away, not those of others.

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
