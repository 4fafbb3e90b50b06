// SPDX-License-Identifier: MIT
#include "hub/pull.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/format.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "hub/file_lock.h"

namespace moestro {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(50);  // whether a lock is free

// Locks a content; waits while another process has the lock.
Result<FileLock> Lock(HubClient& client, const HubCache& cache, const std::string& repo,
                      const HubFile& file, const PullWatcher& watcher) {
  const HubLayout& layout = cache.layout();
  TRY(const SharedFolder folder,
      SharedFolder::Open(layout.cache(), layout.LockFolder(repo), SharedFolder::Way::kMake));
  const std::string name = HubLayout::LockName(BlobNameOf(file));
  bool has_said = false;
  while (true) {
    TRY(auto lock, FileLock::Try(folder, name));
    if (lock) return *std::move(lock);
    if (!has_said && watcher.say) {
      watcher.say(Format("another process fetches {}; waiting for it", Printable(file.path)));
    }
    has_said = true;
    if (client.stop().is_requested()) return Fail(Errc::kInterrupted, "stopped");
    std::this_thread::sleep_for(kLookAgain);
  }
}

// Whether the cache holds a file's content, with or without a link to it.
bool IsThere(const HubCache& cache, const std::string& repo, const std::string& commit,
             const HubFile& file) {
  const std::string& blob = BlobNameOf(file);
  return cache.HasBlob(repo, blob, file.size) || cache.IsPlaced(repo, commit, file, blob);
}

// Whether the cache holds all of the model under its name.
bool IsKnown(const HubCache& cache, const PullPlan& plan) {
  const std::string& repo = plan.name.repo;
  if (!IsCommit(plan.name.revision) && cache.CommitOf(repo, plan.name.revision) != plan.commit) {
    return false;
  }
  return std::ranges::all_of(plan.model.files, [&](const HubFile& file) {
    return cache.IsPlaced(repo, plan.commit, file, BlobNameOf(file));
  });
}

}  // namespace

const std::string& BlobNameOf(const HubFile& file) {
  return file.sha256.empty() ? file.git_id : file.sha256;
}

Result<PullPlan> PlanPull(HubClient& client, const HubCache& cache, const ModelName& name) {
  const HubLayout& layout = cache.layout();
  if (layout.cache().empty()) {
    return Fail(Errc::kIo, "no place for models is known; set HF_HUB_CACHE to a folder, or HOME");
  }
  TRY(HubListing listing, client.Files(name.repo, name.revision));
  PullPlan plan{.name = name, .commit = listing.commit};
  TRY(plan.model, ChooseModel(listing.files, name));
  const std::vector<CachedPart> parts = cache.PartsOf(name.repo);
  for (const HubFile& file : plan.model.files) {
    const std::string& blob = BlobNameOf(file);
    if (blob.empty()) {
      return Fail(Errc::kIo, "the hub names no hash of {}, so nobody could check what comes",
                  Printable(file.path));
    }
    if (IsThere(cache, name.repo, plan.commit, file)) continue;
    const auto part = std::ranges::find(parts, blob, &CachedPart::etag);
    const uint64_t there = part != parts.end() ? part->disk_bytes : 0;
    const uint64_t missing = file.size - std::min(file.size, there);
    plan.missing_bytes += std::min(missing, UINT64_MAX - plan.missing_bytes);
  }
  plan.path = layout.Snapshot(name.repo, plan.commit) + "/" + plan.model.files.front().path;
  TRY(plan.free_bytes, FreeBytesAt(layout.cache()));
  return plan;
}

Status CheckRoom(const PullPlan& plan, const HubCache& cache) {
  if (plan.missing_bytes <= plan.free_bytes) return {};
  return Fail(Errc::kNoMemory,
              "{} needs {} more in {}, and {} are free there; make room, 'moestro list' says what "
              "models take, or name another folder in HF_HUB_CACHE",
              TextOf(plan.name), FormatBytes(plan.missing_bytes), cache.layout().cache(),
              FormatBytes(plan.free_bytes));
}

Status Pull(HubClient& client, const HubCache& cache, const PullPlan& plan,
            const FetchOptions& options, const PullWatcher& watcher) {
  const std::string& repo = plan.name.repo;
  if (IsKnown(cache, plan)) return {};  // a complete model needs no right to write into the cache
  TRY_STATUS(CheckRoom(plan, cache));
  TRY_STATUS(cache.MakeFolders(repo));
  // Locks are held until links name the contents, because a removal deletes contents without a
  // link.
  std::map<std::string, FileLock> locks;  // by content
  uint64_t before = 0;                    // bytes of the files that are whole
  for (const HubFile& file : plan.model.files) {
    const std::string& blob = BlobNameOf(file);
    if (!locks.contains(blob)) {  // parts may have one content
      TRY(FileLock lock, Lock(client, cache, repo, file, watcher));
      if (locks.empty() && lock.is_of_this_machine() && watcher.say) {
        watcher.say(
            Format("the disk of {} has no locks, so no other machine waits for this one; "
                   "do not fetch {} on another meanwhile",
                   cache.layout().cache(), Printable(repo)));
      }
      locks.emplace(blob, std::move(lock));
    }
    const auto watch = [&](const FetchProgress& progress) {
      if (!watcher.progress) return;
      watcher.progress({.file = file.path,
                        .there = before + progress.there,
                        .checked = progress.checked,
                        .total = plan.model.bytes(),
                        .file_bytes = file.size,
                        .is_checking = progress.there == file.size});
    };
    if (!IsThere(cache, repo, plan.commit, file)) {  // by another process meanwhile
      FileFetch fetch(
          client, cache.layout(),
          {.repo = repo, .commit = plan.commit, .file = file.path, .etag = blob, .size = file.size},
          options, watch);
      Status fetched = fetch.Run();
      // Without locks another machine may have finished first.
      if (!fetched && !IsThere(cache, repo, plan.commit, file)) return fetched;
    }
    before += file.size;
  }
  // The links are made at the end, so that other programs find the model whole or not at all.
  const std::vector<HubFile>& files = plan.model.files;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string& blob = BlobNameOf(files[i]);
    const bool others_need_it =
        std::ranges::any_of(std::span(files).subspan(i + 1),
                            [&](const HubFile& other) { return BlobNameOf(other) == blob; });
    TRY_STATUS(cache.Place(repo, plan.commit, files[i], blob, others_need_it));
  }
  return cache.WriteRef(repo, plan.name.revision, plan.commit);
}

}  // namespace moestro
