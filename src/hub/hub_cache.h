// SPDX-License-Identifier: MIT
// The cache of models that tools of the hub share: lists its contents and adds to them, so that
// other tools find them. Calls no server.
//
// Other programs change the cache meanwhile; an entry that vanishes between two reads counts as
// absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/choose_file.h"
#include "hub/model_name.h"

namespace moestro {

// A model whose files are all in the cache.
struct CachedModel {
  std::string repo;
  std::string commit;
  std::string revision;  // name of the commit: "main" if that names it, else another branch or tag,
                         // or the commit itself
  HubModel model;
  std::string path;  // path of the model's first file

  // The model's name as a user types it: "owner/repo:Q4_K_M".
  std::string name() const;
};

// A file that is partly in the cache.
struct CachedPart {
  std::string repo;
  std::string file = {};
  std::string etag = {};
  uint64_t size = 0;        // bytes of the whole
  uint64_t there = 0;       // bytes received so far
  uint64_t disk_bytes = 0;  // bytes that the part takes on disk
};

class HubCache {
 public:
  // The folder need not exist.
  explicit HubCache(std::string folder) : layout_(std::move(folder)) {}

  const HubLayout& layout() const { return layout_; }

  // The model that `name` means; nullopt: no such model is complete. The newest snapshot stands in
  // where the branch's snapshot has no file of it. REQUIRES: name.kind is kHub. kInvalidRequest:
  // several models match.
  Result<std::optional<CachedModel>> Find(const ModelName& name) const;
  // All models and parts, by name.
  std::vector<CachedModel> Models() const;
  std::vector<CachedPart> Parts() const;
  std::vector<CachedPart> PartsOf(const std::string& repo) const;

  // Whether the cache holds the content with so many bytes.
  bool HasBlob(const std::string& repo, const std::string& etag, uint64_t size) const;
  // The folders of a repository and of its locks. kIo: names the folder and what to do.
  Status MakeFolders(const std::string& repo) const;
  // Whether a file of a snapshot is a link to an existing content or, where the disk has no links,
  // a file of so many bytes.
  bool IsPlaced(const std::string& repo, const std::string& commit, const HubFile& file,
                const std::string& etag) const;
  // Makes a file of a snapshot a link to a content. Where the disk has no links the content itself
  // goes there, or a copy of it if `others_need_it`. kIo.
  Status Place(const std::string& repo, const std::string& commit, const HubFile& file,
               const std::string& etag, bool others_need_it) const;
  // Records the commit that a branch or tag names. A commit needs no record. kIo.
  Status WriteRef(const std::string& repo, const std::string& revision,
                  const std::string& commit) const;

  // Files of a snapshot whose content exists; their links' names as hashes.
  std::vector<HubFile> FilesOf(const std::string& repo, const std::string& commit) const;
  // The commits of all snapshots, the newest first.
  std::vector<std::string> SnapshotsOf(const std::string& repo) const;
  // The commit that a revision names in the cache; nullopt: none.
  std::optional<std::string> CommitOf(const std::string& repo, const std::string& revision) const;
  // All repositories, by name.
  std::vector<std::string> Repos() const;
  // Branches and tags that name the commit, "main" first.
  std::vector<std::string> RevisionsOf(const std::string& repo, const std::string& commit) const;

 private:
  HubLayout layout_;
};

}  // namespace moestro
