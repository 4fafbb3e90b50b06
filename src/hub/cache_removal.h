// SPDX-License-Identifier: MIT
// Takes models out of the cache that tools of the hub share.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "hub/hub_cache.h"
#include "hub/model_name.h"

namespace moestro {

struct Removal {
  std::string name;          // of the removed model
  uint64_t freed = 0;        // bytes
  uint64_t kept = 0;         // bytes that another snapshot still links
  bool was_partial = false;  // the cache held only a part of the model
};

// Removes the model that `name` means, or the part that has been fetched. A content that another
// snapshot links stays; a snapshot, a branch and a repository go with their last file.
// REQUIRES: name.kind is kHub. kInvalidRequest: no such model (names the nearest), or several
// match. kIo: a process fetches it at this moment; the folder cannot be written.
Result<Removal> RemoveModel(const HubCache& cache, const ModelName& name);

}  // namespace moestro
