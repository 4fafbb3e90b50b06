// SPDX-License-Identifier: MIT
#include "hub/hub_layout.h"

#include <algorithm>

#include "base/format.h"
#include "hub/model_name.h"

namespace moestro {
namespace {

constexpr std::string_view kModels = "models--";
constexpr std::string_view kBetween = "--";

std::string FolderName(std::string_view repo) {
  const size_t slash = repo.find('/');
  return Format("{}{}{}{}", kModels, repo.substr(0, slash), kBetween, repo.substr(slash + 1));
}

}  // namespace

std::string HubLayout::RepoFolder(std::string_view repo) const {
  return Format("{}/{}", cache_, FolderName(repo));
}
std::string HubLayout::Blob(std::string_view repo, std::string_view etag) const {
  return Format("{}/{}", BlobFolder(repo), etag);
}
std::string HubLayout::Part(std::string_view repo, std::string_view etag) const {
  return Format("{}{}", Blob(repo, etag), kPartSuffix);
}
std::string HubLayout::State(std::string_view repo, std::string_view etag) const {
  return Format("{}{}", Blob(repo, etag), kStateSuffix);
}
std::string HubLayout::Ref(std::string_view repo, std::string_view revision) const {
  return Format("{}/refs/{}", RepoFolder(repo), revision);
}
std::string HubLayout::Snapshot(std::string_view repo, std::string_view commit) const {
  return Format("{}/{}", Snapshots(repo), commit);
}
std::string HubLayout::LockFolder(std::string_view repo) const {
  return Format("{}/.locks/{}", cache_, FolderName(repo));
}

std::optional<std::string> HubLayout::RepoOf(std::string_view folder_name) {
  if (!folder_name.starts_with(kModels)) return std::nullopt;
  folder_name.remove_prefix(kModels.size());
  const size_t between = folder_name.find(kBetween);
  if (between == std::string_view::npos) return std::nullopt;
  std::string repo = Format("{}/{}", folder_name.substr(0, between),
                            folder_name.substr(between + kBetween.size()));
  return IsRepoName(repo) ? std::optional(std::move(repo)) : std::nullopt;
}

std::string HubLayout::LinkTarget(std::string_view path, std::string_view etag) {
  std::string target = "../../blobs/";
  for (auto n = std::ranges::count(path, '/'); n > 0; --n) target.insert(0, "../");
  return target.append(etag);
}

}  // namespace moestro
