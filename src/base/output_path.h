// SPDX-License-Identifier: MIT
// The name for a command's output: the name as given, the place that the name leads to, and the
// files that must stay as they are, since the same command reads or writes them by other names.
//
// Thread rule: none, values that share nothing but the file system.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {

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

}  // namespace moestro
