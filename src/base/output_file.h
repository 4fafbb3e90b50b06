// SPDX-License-Identifier: MIT
// A large file that appears under its name only when it is complete. Until then the file has no
// name where the file system allows that, so even a killed process leaves nothing; elsewhere a
// temporary name may be left, which hinders no later file. Written front to back; dirty pages are
// flushed and dropped on the way: a small memory limit is enough for any size. One thread.
// Move-only.
//
// All files of commands are made here, so the class keeps their rules: a name that is a link leads
// to the file that is replaced, a device or a pipe is written to as it is and never replaced, and
// files that the path spares are not written (base/output_path.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/output_path.h"
#include "base/result.h"

namespace moestro {

// Readers of a new file: as the user's umask allows, or the user alone (for conversations), from
// the first byte on and even where the file replaces one that others could read.
enum class FileReaders : uint8_t { kByUmask, kOwner };

class OutputFile {
 public:
  // Opens a temporary file in the folder that `path` leads to. Fails with kIo, naming place and
  // reason; also for a named pipe without a reader after a few seconds.
  static Result<OutputFile> Create(OutputPath path, FileReaders readers = FileReaders::kByUmask);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // removes a file that was not kept

  // Appends. Fails with kIo: disk full, file size limit, device error.
  Status Write(std::span<const std::byte> bytes);

  // Appends zeros, which take no room where the file system has holes. Fails as Write() does.
  Status Skip(uint64_t bytes);

  // Makes the bytes durable and gives the file its name, replacing the file that has that name.
  Status Publish();

  // From now on the file stays. REQUIRES: Publish() succeeded.
  void Keep() { unkept_path_.clear(); }

  uint64_t size() const { return size_; }

 private:
  OutputFile(int fd, OutputPath path, Destination destination)
      : fd_(fd), path_(std::move(path)), destination_(std::move(destination)) {}
  bool is_stream() const;  // a device or a pipe, which is not replaced
  Status GiveTemporaryName();
  Status MayReplace() const;
  void Flush();  // starts writing the newest window back, drops the one before
  Status Failed(const char* what) const;

  int fd_;
  OutputPath path_;          // as given by the caller
  Destination destination_;  // the place of the final name
  std::string unkept_path_;  // the file's present name, which the destructor removes; empty:
                             // nothing to remove
  uint64_t size_ = 0;
  uint64_t flushing_ = 0;  // beginning of the window that is being written to the disk
  uint64_t flushed_ = 0;   // everything below is on the disk and out of the page cache
};

// Checks, before hours of work, that a file of this name may be made. kIo: as Create().
Status CheckMayCreate(const OutputPath& path);

// Bytes that may be written to `path`; the largest number for a device or a pipe. kIo if its folder
// does not exist.
Result<uint64_t> FreeBytesFor(const OutputPath& path);

// `folder`, or the nearest existing folder above it.
std::string NearestFolder(const std::string& folder);

// Bytes that may be written in `folder` once it is made. Fails as FreeBytesFor() does.
Result<uint64_t> FreeBytesAt(const std::string& folder);

// True if files in `folder` lie in memory (tmpfs, ramfs). kIo if the folder does not exist.
Result<bool> LiesInMemory(const std::string& folder);

}  // namespace moestro
