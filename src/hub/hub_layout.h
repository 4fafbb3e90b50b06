// SPDX-License-Identifier: MIT
// Paths in the cache that tools of the hub share. Pure.
//
//   models--owner--repo/refs/main                    the commit that the branch named last
//   models--owner--repo/blobs/<etag>                 contents
//   models--owner--repo/snapshots/<commit>/<path>    links to ../../blobs/<etag>
//   .locks/models--owner--repo/<etag>.lock           who fetches a content
// and of ours, beside a content that is not whole yet:
//   models--owner--repo/blobs/<etag>.moestro-part, <etag>.moestro-state
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro {

class HubLayout {
 public:
  explicit HubLayout(std::string cache) : cache_(std::move(cache)) {}

  static constexpr std::string_view kPartSuffix = ".moestro-part";
  static constexpr std::string_view kStateSuffix = ".moestro-state";

  const std::string& cache() const { return cache_; }
  std::string RepoFolder(std::string_view repo) const;
  std::string BlobFolder(std::string_view repo) const { return RepoFolder(repo) + "/blobs"; }
  std::string Blob(std::string_view repo, std::string_view etag) const;
  std::string Part(std::string_view repo, std::string_view etag) const;
  std::string State(std::string_view repo, std::string_view etag) const;
  std::string Ref(std::string_view repo, std::string_view revision) const;
  std::string Snapshots(std::string_view repo) const { return RepoFolder(repo) + "/snapshots"; }
  std::string Snapshot(std::string_view repo, std::string_view commit) const;
  std::string LockFolder(std::string_view repo) const;
  // Names of files in the folders above.
  static std::string PartName(std::string_view etag) {
    return std::string(etag).append(kPartSuffix);
  }
  static std::string StateName(std::string_view etag) {
    return std::string(etag).append(kStateSuffix);
  }
  static std::string LockName(std::string_view etag) { return std::string(etag).append(".lock"); }

  // "owner/repo" of the name of a folder; nullopt: the folder is not a repository's.
  static std::optional<std::string> RepoOf(std::string_view folder_name);
  // Target of a link at <path> of a snapshot: "../../blobs/<etag>", deeper for folders.
  static std::string LinkTarget(std::string_view path, std::string_view etag);

 private:
  std::string cache_;
};

}  // namespace moestro
