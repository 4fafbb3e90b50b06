// SPDX-License-Identifier: MIT
// Models put into the cache and taken out of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/choose_file.h"
#include "hub/file_fetch.h"
#include "hub/hub_cache.h"
#include "hub/hub_client.h"
#include "hub/model_name.h"

namespace moestro {

// Brings a model of the hub into the cache.
//
// One thread.

// The model that a name means now, and the bytes that the cache lacks.
struct PullPlan {
  ModelName name;
  std::string commit;
  HubModel model = {};
  uint64_t missing_bytes = 0;
  uint64_t free_bytes = 0;  // on the cache's disk
  std::string path = {};    // path of the model's first file, once it is in the cache
};

struct PullProgress {
  std::string file;      // the file that is being fetched
  uint64_t there = 0;    // bytes of the whole model
  uint64_t checked = 0;  // of the file, by the hash
  uint64_t total = 0;    // bytes of the whole model
  uint64_t file_bytes = 0;
  bool is_checking = false;  // all of the file has come
};

struct PullWatcher {
  std::function<void(const PullProgress&)> progress = {};
  std::function<void(std::string_view)> say = {};  // a sentence: why nothing happens
};

// Resolves a name by the hub. REQUIRES: name.kind is kHub. Errors of HubClient::Files() and
// ChooseModel(); kIo: no variable names a cache, a file without a hash.
Result<PullPlan> PlanPull(HubClient& client, const HubCache& cache, const ModelName& name);

// kNoMemory: the disk has not as many bytes free as are missing.
Status CheckRoom(const PullPlan& plan, const HubCache& cache);

// Fetches the missing files and links them into the snapshot. Waits while another process fetches
// the same content. Errors of CheckRoom() and FileFetch::Run(); bytes received before an error
// stay.
Status Pull(HubClient& client, const HubCache& cache, const PullPlan& plan,
            const FetchOptions& options, const PullWatcher& watcher);

// The name of a file's content in the cache; empty: the hub names none.
const std::string& BlobNameOf(const HubFile& file);

// Takes models out of the cache that tools of the hub share.

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
