// SPDX-License-Identifier: MIT
#include "hub/hub_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/input_file.h"
#include "base/output_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "hub/fetch_plan.h"
#include "hub/hub_reply.h"
#include "hub/shared_folder.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 50'000;  // entries that are read of a folder

// Paths of all entries below `folder` but folders, relative to `folder`. Follows no links to
// folders.
std::vector<std::string> PathsBelow(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator() && paths.size() < kMostEntries;
       at.increment(error)) {
    std::error_code ignored;
    if (at->is_symlink(ignored) || !at->is_directory(ignored)) {
      paths.push_back(at->path().string().substr(folder.size() + 1));
    }
  }
  return paths;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator() && names.size() < kMostEntries;
       at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// A small file's content; empty: the file cannot be read or is longer.
std::string ReadSmall(const std::string& path, size_t most_bytes) {
  std::optional<std::string> text = ReadSmallFile(path, most_bytes + 1);
  return text && text->size() <= most_bytes ? std::move(*text) : "";
}

std::vector<HubModel> WholeModels(const std::vector<HubFile>& files) {
  std::vector<HubModel> models = ModelsIn(files);
  std::erase_if(models, [](const HubModel& model) { return !model.is_complete(); });
  return models;
}

}  // namespace

std::string CachedModel::name() const {
  ModelName name{.kind = ModelNameKind::kHub, .repo = repo, .revision = revision};
  if (model.quantisation.empty())
    name.file = model.files.front().path;
  else
    name.quantisation = model.quantisation;
  return TextOf(name);
}

std::optional<std::string> HubCache::CommitOf(const std::string& repo,
                                              const std::string& revision) const {
  if (IsCommit(revision)) return revision;
  constexpr size_t kMostBytes = 100;
  std::string commit = ReadSmall(layout_.Ref(repo, revision), kMostBytes);
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' ')) commit.pop_back();
  return IsCommit(commit) ? std::optional(std::move(commit)) : std::nullopt;
}

std::vector<std::string> HubCache::SnapshotsOf(const std::string& repo) const {
  std::vector<std::pair<int64_t, std::string>> by_time;
  for (std::string& commit : NamesIn(layout_.Snapshots(repo))) {
    struct stat info{};
    if (!IsCommit(commit) || stat(layout_.Snapshot(repo, commit).c_str(), &info) != 0) continue;
    const int64_t modified = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    by_time.emplace_back(-modified, std::move(commit));
  }
  std::ranges::sort(by_time);
  std::vector<std::string> commits;
  for (auto& [time, commit] : by_time) commits.push_back(std::move(commit));
  return commits;
}

std::vector<HubFile> HubCache::FilesOf(const std::string& repo, const std::string& commit) const {
  const std::string folder = layout_.Snapshot(repo, commit);
  std::vector<HubFile> files;
  for (std::string& path : PathsBelow(folder)) {
    struct stat info{};
    const std::string whole = folder + "/" + path;
    if (stat(whole.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    std::error_code ignored;
    std::string blob = fs::read_symlink(whole, ignored).filename().string();
    HubFile file{.path = std::move(path), .size = static_cast<uint64_t>(info.st_size)};
    if (blob.size() == 64 && IsBlobName(blob)) file.sha256 = std::move(blob);
    files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &HubFile::path);
  return files;
}

std::vector<std::string> HubCache::RevisionsOf(const std::string& repo,
                                               const std::string& commit) const {
  std::vector<std::string> revisions;
  for (std::string& revision : PathsBelow(layout_.RepoFolder(repo) + "/refs")) {
    if (IsRevision(revision) && CommitOf(repo, revision) == commit) {
      revisions.push_back(std::move(revision));
    }
  }
  std::ranges::sort(revisions, {}, [](const std::string& revision) {
    return std::pair(revision != "main", revision);
  });
  return revisions;
}

Result<std::optional<CachedModel>> HubCache::Find(const ModelName& name) const {
  std::vector<std::string> commits;
  if (const auto commit = CommitOf(name.repo, name.revision)) commits.push_back(*commit);
  if (name.revision == "main")
    std::ranges::move(SnapshotsOf(name.repo), std::back_inserter(commits));
  for (const std::string& commit : commits) {
    const std::vector<HubModel> found =
        MatchingModels(WholeModels(FilesOf(name.repo, commit)), name);
    if (found.empty()) continue;
    if (found.size() > 1) return std::unexpected(SeveralMatch(found, name));
    const auto revisions = RevisionsOf(name.repo, commit);
    return CachedModel{
        .repo = name.repo,
        .commit = commit,
        .revision = revisions.empty() ? commit : revisions.front(),
        .model = found.front(),
        .path = layout_.Snapshot(name.repo, commit) + "/" + found.front().files.front().path};
  }
  return std::nullopt;
}

std::vector<std::string> HubCache::Repos() const {
  std::vector<std::string> repos;
  for (const std::string& folder : NamesIn(layout_.cache())) {
    if (auto repo = HubLayout::RepoOf(folder)) repos.push_back(*std::move(repo));
  }
  return repos;
}

std::vector<CachedModel> HubCache::Models() const {
  std::vector<CachedModel> models;
  for (const std::string& repo : Repos()) {
    for (const std::string& commit : SnapshotsOf(repo)) {
      const auto revisions = RevisionsOf(repo, commit);
      for (HubModel& model : WholeModels(FilesOf(repo, commit))) {
        std::string path = layout_.Snapshot(repo, commit) + "/" + model.files.front().path;
        models.push_back({.repo = repo,
                          .commit = commit,
                          .revision = revisions.empty() ? commit : revisions.front(),
                          .model = std::move(model),
                          .path = std::move(path)});
      }
    }
  }
  return models;
}

std::vector<CachedPart> HubCache::PartsOf(const std::string& repo) const {
  std::vector<CachedPart> parts;
  for (const std::string& name : NamesIn(layout_.BlobFolder(repo))) {
    if (!name.ends_with(HubLayout::kPartSuffix)) continue;
    const std::string etag = name.substr(0, name.size() - HubLayout::kPartSuffix.size());
    struct stat info{};
    if (!IsBlobName(etag) || stat(layout_.Part(repo, etag).c_str(), &info) != 0) continue;
    constexpr uint64_t kBlock = 512;  // the unit of st_blocks
    CachedPart part{.repo = repo, .file = {}, .etag = etag};
    part.disk_bytes = static_cast<uint64_t>(info.st_blocks) * kBlock;
    const auto state = ParseState(ReadSmall(layout_.State(repo, etag), kMostStateBytes));
    if (state && state->repo == repo && state->etag == etag) {
      part.file = state->file;
      part.size = state->size;
      part.there = state->done.bytes();
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<CachedPart> HubCache::Parts() const {
  std::vector<CachedPart> parts;
  for (const std::string& repo : Repos()) {
    std::ranges::move(PartsOf(repo), std::back_inserter(parts));
  }
  return parts;
}

bool HubCache::HasBlob(const std::string& repo, const std::string& etag, uint64_t size) const {
  struct stat info{};
  return stat(layout_.Blob(repo, etag).c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         static_cast<uint64_t>(info.st_size) == size;
}

Status HubCache::MakeFolders(const std::string& repo) const {
  for (const std::string& folder : {layout_.BlobFolder(repo), layout_.LockFolder(repo)}) {
    TRY_STATUS(SharedFolder::Open(layout_.cache(), folder, SharedFolder::Way::kMake));
  }
  return {};
}

bool HubCache::IsPlaced(const std::string& repo, const std::string& commit, const HubFile& file,
                        const std::string& etag) const {
  const std::string path = layout_.Snapshot(repo, commit) + "/" + file.path;
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0) return false;
  if (S_ISREG(info.st_mode)) return static_cast<uint64_t>(info.st_size) == file.size;
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  return !error && target == HubLayout::LinkTarget(file.path, etag) &&
         HasBlob(repo, etag, file.size);
}

Status HubCache::Place(const std::string& repo, const std::string& commit, const HubFile& file,
                       const std::string& etag, bool others_need_it) const {
  const fs::path path = layout_.Snapshot(repo, commit) + "/" + file.path;
  TRY(const SharedFolder folder,
      SharedFolder::Open(layout_.cache(), path.parent_path().string(), SharedFolder::Way::kMake));
  TRY(const SharedFolder blobs,
      SharedFolder::Open(layout_.cache(), layout_.BlobFolder(repo), SharedFolder::Way::kMake));
  if (IsPlaced(repo, commit, file, etag)) return {};
  // The link is made aside and renamed, so that a reader sees the old entry or the new one. Other
  // processes may do the same, and one that was killed may have left a name.
  constexpr int kMostNames = 1000;
  std::string aside;
  bool is_link = false;
  for (int n = 0; n < kMostNames && !is_link; ++n) {
    aside = Format(".moestro-link-{}-{}", getpid(), n);
    is_link = folder.MakeLink(aside, HubLayout::LinkTarget(file.path, etag));
    if (!is_link && errno != EEXIST) break;
  }
  std::error_code error;
  const bool is_moved = !is_link && !others_need_it;
  if (!is_link && others_need_it) fs::copy_file(blobs.WayTo(etag), folder.WayTo(aside), error);
  const std::string made = is_moved ? blobs.WayTo(etag) : folder.WayTo(aside);
  if (!error) fs::rename(made, folder.WayTo(path.filename().string()), error);
  if (!error || IsPlaced(repo, commit, file, etag)) return {};
  if (!is_moved) folder.Remove(aside);
  return Fail(Errc::kIo, "cannot make the file {}: {}", Printable(path.string(), 400),
              error.message());
}

Status HubCache::WriteRef(const std::string& repo, const std::string& revision,
                          const std::string& commit) const {
  if (IsCommit(revision) || CommitOf(repo, revision) == commit) return {};
  const fs::path path = layout_.Ref(repo, revision);
  TRY(const SharedFolder folder,
      SharedFolder::Open(layout_.cache(), path.parent_path().string(), SharedFolder::Way::kMake));
  TRY(OutputFile file, OutputFile::Create(folder.Output(path.filename().string())));
  TRY_STATUS(file.Write(std::as_bytes(std::span(commit))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

}  // namespace moestro
