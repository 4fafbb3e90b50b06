// SPDX-License-Identifier: MIT
// A model's name as the user writes it, and its places in the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

enum class ModelNameKind : uint8_t {
  kPath,     // a file of this machine, which may be missing
  kHub,      // of a repository of the hub
  kAddress,  // a GGUF anywhere else
};

struct ModelName {
  ModelNameKind kind = ModelNameKind::kPath;
  std::string path = {};          // kPath: the typed path
  std::string repo = {};          // kHub: "owner/repo"
  std::string revision = "main";  // kHub: a branch, a tag or a commit
  std::string quantisation = {};  // kHub: the typed quantisation; empty: none
  std::string file = {};          // kHub: a path in the repository; empty: chosen by quantisation
  std::string address = {};       // kAddress

  bool operator==(const ModelName&) const = default;
};

using PathExists = std::function<bool(const std::string& path)>;

// An existing path wins. Then, in this order:
//   hf:owner/repo[:quantisation][@revision], hf:owner/repo/folder/file.gguf[@revision], and with
//     hf:// in front
//   https://HOST/owner/repo[/resolve|blob|tree/revision[/file.gguf]] of the hub (`endpoint` or the
//     public one), and HOST/ with all that may follow hf:, both also without https://; any other
//     https address of a .gguf file; http only for the endpoint and for this machine
//   owner/repo[:quantisation][@revision], unless it ends in .gguf
// Anything else is a path.
// kUsage: hf: or an address that names nothing.
Result<ModelName> ParseModelName(const std::string& text, const std::string& endpoint,
                                 const PathExists& exists);

// The name as a user types it: "owner/repo:Q4_K_M", "hf:owner/repo/file.gguf@v2", a path, an
// address.
std::string TextOf(const ModelName& name);

// "owner/repo", as the hub allows it: letters, digits, '.', '_' and '-' with none of "--", "..",
// nor at an end '.' or '-'. So no two names share a folder of the cache.
bool IsRepoName(std::string_view repo);
// A relative path that stays below where it begins and has no control characters: a server's text
// becomes a file's name.
bool IsSafePath(std::string_view path);
// A branch, tag or commit that is a safe path, as refs/<revision> in the cache.
bool IsRevision(std::string_view revision);
// 40 hexadecimal digits in lower case.
bool IsCommit(std::string_view text);

// Paths in the cache that tools of the hub share. Pure.
//
//   models--owner--repo/refs/main                    the commit that the branch named last
//   models--owner--repo/blobs/<etag>                 contents
//   models--owner--repo/snapshots/<commit>/<path>    links to ../../blobs/<etag>
//   .locks/models--owner--repo/<etag>.lock           who fetches a content
// and of ours, beside a content that is not whole yet:
//   models--owner--repo/blobs/<etag>.moestro-part, <etag>.moestro-state

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
