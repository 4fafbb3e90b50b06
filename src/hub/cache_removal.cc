// SPDX-License-Identifier: MIT
#include "hub/cache_removal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/nearest_name.h"
#include "base/output_path.h"
#include "base/printable.h"
#include "base/small_file.h"
#include "hub/file_lock.h"
#include "hub/hub_reply.h"
#include "hub/shared_folder.h"

namespace moestro {
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
