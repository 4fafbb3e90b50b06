// SPDX-License-Identifier: MIT
// A large file that appears under its name only when it is complete. Until then the file has no
// name where the file system allows that, so even a killed process leaves nothing; elsewhere a
// temporary name may be left, which hinders no later file. Written front to back; dirty pages are
// flushed and dropped on the way: a small memory limit is enough for any size. One thread.
// Move-only.
//
// All files of commands are made here, so the class keeps their rules: a name that is a link leads
// to the file that is replaced, a device or a pipe is written to as it is and never replaced, and
// files that the path spares (OutputPath) are not written.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {

// The name for a command's output: the name as given, the place that the name leads to, and the
// files that must stay as they are, since the same command reads or writes them by other names.
//
// Thread rule: none, values that share nothing but the file system.

// A name with links followed. Other users' links in folders where everybody can write (/tmp) are
// not followed, as the kernel does not follow them for open().
struct Destination {
  enum class Kind : uint8_t {
    kNothing,     // no file yet
    kFile,        // may be replaced
    kFolder,      // cannot be written
    kStream,      // a device, a pipe, another process's open file: written to as it is
    kDescriptor,  // an open file that this process was started with, as /dev/stdout
  };
  std::string path;
  Kind kind = Kind::kNothing;
  int descriptor = -1;  // of kDescriptor
};
// kIo: links in a circle, another user's link, a missing folder on the way.
Result<Destination> FollowLinks(const std::string& path);

// The file that a name leads to, by any way: links, hard links, "./a/../b". A file that does not
// exist yet is identified by its folder and its last name.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;     // of the file, or of the folder of a file that does not exist
  std::string name = {};  // of a file that does not exist

  bool operator==(const FileIdentity&) const = default;
  // nullopt: the name leads nowhere, or to something that writing does not replace: a terminal, a
  // pipe, a folder.
  static std::optional<FileIdentity> Of(const std::string& path);
};

// "a" of "a/b"; "." where a name has no folder.
std::string FolderOf(const std::string& path);

class OutputPath {
 public:
  OutputPath() = default;
  // A name beside which nothing is read.
  template <class Text>
    requires std::constructible_from<std::string, Text>
  OutputPath(Text&& text) : text_(std::forward<Text>(text)) {}  // NOLINT: a path is written so

  // The name of a file of our own in a folder where others may write, too: a link of that name is
  // replaced, not followed. `way`: another path to the same file, through an open folder; messages
  // use `path`.
  static OutputPath OfOwn(std::string path, std::string way = {});
  // Another name that spares the same files.
  OutputPath Beside(std::string path) const;

  const std::string& text() const { return text_; }  // as given
  bool empty() const { return text_.empty(); }
  bool is_own() const { return is_own_; }
  // The path to open, for files of our own through an open folder.
  const std::string& way() const { return way_.empty() ? text_ : way_; }

  // Adds files that stay as they are, by whatever name they are reached.
  enum class Use : uint8_t { kRead, kWritten };  // by the same command
  void Spare(std::span<const std::string> paths, Use use = Use::kRead);
  void Spare(const std::string& path, Use use = Use::kRead) { Spare(std::span(&path, 1), use); }
  // Fails if the name leads to a spared file. kIo: the command reads that file; kUsage: another
  // output has that name.
  Status Check() const;

 private:
  std::string text_;
  struct Spared {
    std::string path;
    Use use;
  };
  std::vector<Spared> spared_;
  std::string way_;
  bool is_own_ = false;
};

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
