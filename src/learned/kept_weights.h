// SPDX-License-Identifier: MIT
// The weights' number of model files (model/weights_id.h), kept from one start to the next in a
// small file of the user's cache, as long as the files are the same by device, inode, size and
// time of change. Whatever is wrong with the folder or a file costs a reading of the weights and is
// no error.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file_stamp.h"
#include "base/result.h"

namespace moestro {

// A file's stamp, and when anything about it changed last: a content that was replaced in place and
// given its old time of modification has another one.
struct FileVersion {
  FileStamp stamp;
  int64_t changed_ns = 0;
  bool operator==(const FileVersion&) const = default;

  static Result<FileVersion> Of(const std::string& path);  // kIo
};

struct WeightsKey {
  std::string what = {};  // which of its weights count, in words
  uint64_t header = 0;    // its fingerprint
  std::vector<FileVersion> files = {};
  bool operator==(const WeightsKey&) const = default;
};

// The number kept for exactly this; nullopt: there is none. A file that another user could have
// written is not believed. `folder` may be empty: none either.
std::optional<uint64_t> KeptWeights(const std::string& folder, const WeightsKey& key);
// Keeps it, in place of that of an older content of the same file. A file that was modified within
// the last two seconds is left out: it may change again within the same tick of its file system's
// clock.
void KeepWeights(const std::string& folder, const WeightsKey& key, uint64_t id);

// The file of that key, for tests.
std::string KeptWeightsFile(const std::string& folder, const WeightsKey& key);

}  // namespace moestro
