// SPDX-License-Identifier: MIT
#include "hub/cache_changes.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "hub/hub_reply.h"
#include "hub/shared_folder.h"

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

namespace {

namespace fs = std::filesystem;

// A link of a snapshot, or a file where links are none.
struct Entry {
  std::string path;   // whole
  std::string blob;   // the content's name; empty: not one of this repository's
  uint64_t size = 0;  // bytes
};

Entry EntryAt(const std::string& path, const std::string& blob_folder, uint64_t size) {
  Entry entry{.path = path, .blob = {}, .size = size};
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  if (error) return entry;
  const fs::path whole = fs::weakly_canonical(fs::path(path).parent_path() / target, error);
  const fs::path home = fs::weakly_canonical(blob_folder, error);
  if (!error && whole.parent_path() == home) entry.blob = whole.filename().string();
  return entry;
}

Result<FileLock> LockBlob(const HubCache& cache, const std::string& repo, const std::string& blob) {
  const HubLayout& layout = cache.layout();
  TRY(const SharedFolder folder,
      SharedFolder::Open(layout.cache(), layout.LockFolder(repo), SharedFolder::Way::kMake));
  TRY(auto lock, FileLock::Try(folder, HubLayout::LockName(blob)));
  if (lock) return *std::move(lock);
  return Fail(Errc::kIo, "a process fetches a file of {} at this moment; stop it first", repo);
}

// Opens the folder of a file to be removed, without following links: where a folder of the cache is
// a link, the removal would delete files elsewhere, perhaps another user's.
Result<SharedFolder> FolderToClear(const HubCache& cache, const std::string& path) {
  return SharedFolder::Open(cache.layout().cache(), FolderOf(path), SharedFolder::Way::kNoLinks);
}

Status Unlink(const HubCache& cache, const std::string& path) {
  if (IsAbsent(FolderOf(path))) return {};
  TRY(const SharedFolder folder, FolderToClear(cache, path));
  if (folder.Remove(fs::path(path).filename().string())) return {};
  return Fail(Errc::kIo, "cannot remove {}: {}", Printable(path, 400), std::strerror(errno));
}

// Whether a snapshot of the repository has a link to the content.
bool IsLinked(const HubCache& cache, const std::string& repo, const std::string& blob) {
  const HubLayout& layout = cache.layout();
  for (const std::string& commit : cache.SnapshotsOf(repo)) {
    for (const HubFile& file : cache.FilesOf(repo, commit)) {
      const std::string path = layout.Snapshot(repo, commit) + "/" + file.path;
      if (EntryAt(path, layout.BlobFolder(repo), 0).blob == blob) return true;
    }
  }
  return false;
}

// Folders above `path` that are empty, up to `top` and with it.
void RemoveEmptyAbove(const fs::path& path, const fs::path& top) {
  std::error_code error;
  for (fs::path folder = path.parent_path(); fs::remove(folder, error) && !error && folder != top;
       folder = folder.parent_path()) {
  }
}

// Removes names without content: branches of a snapshot that is gone, the folders of a repository
// without files.
void Tidy(const HubCache& cache, const std::string& repo, const std::string& commit) {
  const HubLayout& layout = cache.layout();
  std::error_code error;
  if (!commit.empty() && !fs::exists(layout.Snapshot(repo, commit), error)) {
    for (const std::string& revision : cache.RevisionsOf(repo, commit)) {
      const std::string ref = layout.Ref(repo, revision);
      fs::remove(ref, error);
      RemoveEmptyAbove(ref, layout.RepoFolder(repo) + "/refs");
    }
  }
  if (!cache.SnapshotsOf(repo).empty()) return;
  for (const std::string& folder :
       {layout.BlobFolder(repo), layout.Snapshots(repo), layout.RepoFolder(repo) + "/refs"}) {
    fs::remove(folder, error);  // only if it is empty
  }
  if (fs::remove(layout.RepoFolder(repo), error) && !error) {
    fs::remove_all(layout.LockFolder(repo), error);
  }
}

Result<Removal> RemoveWhole(const HubCache& cache, const CachedModel& found) {
  const HubLayout& layout = cache.layout();
  const std::string snapshot = layout.Snapshot(found.repo, found.commit);
  std::vector<Entry> entries;
  std::vector<FileLock> locks;
  for (const HubFile& file : found.model.files) {
    entries.push_back(
        EntryAt(snapshot + "/" + file.path, layout.BlobFolder(found.repo), file.size));
    TRY_STATUS(FolderToClear(cache, entries.back().path));
    const std::string& blob = entries.back().blob;
    // Two parts with one content have one lock.
    if (!IsBlobName(blob) || std::ranges::count(entries, blob, &Entry::blob) > 1) continue;
    TRY(FileLock lock, LockBlob(cache, found.repo, blob));
    locks.push_back(std::move(lock));
  }
  if (!IsAbsent(layout.BlobFolder(found.repo))) {
    TRY_STATUS(FolderToClear(cache, layout.Blob(found.repo, "any")));
  }
  Removal removal{.name = found.name()};
  for (const Entry& entry : entries) {
    std::error_code error;
    const bool is_link = fs::is_symlink(entry.path, error);
    TRY_STATUS(Unlink(cache, entry.path));
    RemoveEmptyAbove(entry.path, snapshot);
    if (entry.blob.empty()) {
      removal.freed += is_link ? 0 : entry.size;
    } else if (IsLinked(cache, found.repo, entry.blob)) {
      removal.kept += entry.size;
    } else {
      TRY_STATUS(Unlink(cache, layout.Blob(found.repo, entry.blob)));
      removal.freed += entry.size;
    }
  }
  Tidy(cache, found.repo, found.commit);
  return removal;
}

Result<Removal> RemoveParts(const HubCache& cache, const ModelName& name) {
  const HubLayout& layout = cache.layout();
  const std::vector<CachedPart> parts = cache.PartsOf(name.repo);
  std::vector<HubFile> files;
  for (const CachedPart& part : parts) {
    if (!part.file.empty()) files.push_back({.path = part.file, .size = part.size});
  }
  const std::vector<HubModel> models = MatchingModels(ModelsIn(files), name);
  if (models.size() > 1) return std::unexpected(SeveralMatch(models, name));
  Removal removal{.name = TextOf(name), .was_partial = true};
  for (const CachedPart& part : parts) {
    if (models.empty() || !std::ranges::contains(models.front().files, part.file, &HubFile::path)) {
      continue;
    }
    TRY(const FileLock lock, LockBlob(cache, name.repo, part.etag));
    TRY_STATUS(Unlink(cache, layout.Part(name.repo, part.etag)));
    TRY_STATUS(Unlink(cache, layout.State(name.repo, part.etag)));
    removal.freed += part.disk_bytes;
  }
  if (!models.empty()) {
    Tidy(cache, name.repo, {});
    return removal;
  }
  std::vector<std::string> names;
  for (const CachedModel& model : cache.Models()) names.push_back(model.name());
  return Fail(Errc::kInvalidRequest, "{} is not in {}{}; 'moestro list' says what is",
              Printable(TextOf(name)), layout.cache(), NearestText(TextOf(name), names));
}

}  // namespace

Result<Removal> RemoveModel(const HubCache& cache, const ModelName& name) {
  if (name.quantisation.empty() && name.file.empty()) {
    // A removal takes no default: a word too few would delete the wrong model.
    std::vector<std::string> names;
    for (const CachedModel& model : cache.Models()) {
      if (model.repo == name.repo) names.push_back(model.name());
    }
    if (names.size() > 1) {
      std::string all;
      for (const std::string& one : names) all += (all.empty() ? "" : ", ") + one;
      return Fail(Errc::kInvalidRequest, "several models of {} are there; write which: {}",
                  name.repo, Printable(all, 2000));
    }
  }
  TRY(const auto found, cache.Find(name));
  // Another snapshot may stand in where a model is used, but not where it is removed.
  if (found && found->revision != name.revision && found->commit != name.revision) {
    return Fail(Errc::kInvalidRequest, "{} is not there; to remove the one that is, write {}",
                TextOf(name), Printable(found->name(), 400));
  }
  if (found) return RemoveWhole(cache, *found);
  return RemoveParts(cache, name);
}

}  // namespace moestro
