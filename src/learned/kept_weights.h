// SPDX-License-Identifier: MIT
// The weights' number of model files (model/weights_id.h), kept from one start to the next in a
// small file of the user's cache, as long as the files are the same by device, inode, size and time
// of change. A fault of the folder or of a file costs a reading of the weights and is no error.
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

// A file's stamp, and the time of its last change of any kind: a content that was replaced in place
// and given its old time of modification has another change time.
struct FileVersion {
  FileStamp stamp;
  int64_t changed_ns = 0;
  bool operator==(const FileVersion&) const = default;

  static Result<FileVersion> Of(const std::string& path);  // kIo
};

struct WeightsKey {
  std::string what = {};  // the weights that count, in words
  uint64_t header = 0;    // the header's fingerprint
  std::vector<FileVersion> files = {};
  bool operator==(const WeightsKey&) const = default;
};

// The number kept for exactly this key; nullopt: none is kept, or `folder` is empty. A file that
// another user could have written is ignored.
std::optional<uint64_t> KeptWeights(const std::string& folder, const WeightsKey& key);
// Keeps `id`, in place of the number of an older content of the same file. A file that was modified
// within the last two seconds is left out: it may change again within the same tick of its file
// system's clock.
void KeepWeights(const std::string& folder, const WeightsKey& key, uint64_t id);

// The file of that key, for tests.
std::string KeptWeightsFile(const std::string& folder, const WeightsKey& key);

}  // namespace moestro
