// SPDX-License-Identifier: MIT
#include "hub/hub_reply.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "hub/model_name.h"

namespace moestro {
namespace {

constexpr size_t kMostValues = 200'000;  // of JSON in a reply

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<HubFile> FileOf(const JsonView& entry) {
  const auto text = [&](const JsonView& of, std::string_view key) {
    const auto found = of.Find(key);
    return found ? found->text().value_or("") : std::string();
  };
  if (text(entry, "type") != "file") return std::nullopt;
  HubFile file{.path = text(entry, "path"), .git_id = text(entry, "oid")};
  const auto lfs = entry.Find("lfs");
  const bool is_large = lfs && lfs->kind() == JsonKind::kObject;
  if (is_large) file.sha256 = text(*lfs, "oid");
  if (file.sha256.starts_with("sha256:")) file.sha256.erase(0, 7);
  file.sha256 = LowerCase(file.sha256);
  const auto size = (is_large && lfs->Find("size")) ? lfs->Find("size") : entry.Find("size");
  const auto bytes = size ? size->integer() : std::nullopt;
  if (!IsSafePath(file.path) || !bytes || *bytes < 0) return std::nullopt;
  file.size = static_cast<uint64_t>(*bytes);
  if (!IsHex(file.sha256, 64)) file.sha256.clear();
  // The git id of a large file is its pointer's, not a hash of the content.
  if (is_large || !IsHex(file.git_id, 40)) file.git_id.clear();
  return file;
}

}  // namespace

Result<std::string> ParseCommit(std::string_view body) {
  const auto json = Json::Parse(body, kMostValues);
  const auto sha = json ? json->Find("sha") : std::nullopt;
  std::string commit = sha ? sha->text().value_or("") : "";
  if (IsCommit(commit)) return commit;
  return Fail(Errc::kIo, "the reply names no commit{}", json ? "" : ": " + json.error().message);
}

Result<std::vector<HubFile>> ParseTree(std::string_view body) {
  const auto json = Json::Parse(body, kMostValues);
  if (!json || json->view().kind() != JsonKind::kArray) {
    return Fail(Errc::kIo, "the reply is no list of files{}",
                json ? "" : ": " + json.error().message);
  }
  std::vector<HubFile> files;
  for (size_t i = 0; i < json->size(); ++i) {
    if (auto file = FileOf(*json->At(i))) files.push_back(*std::move(file));
  }
  return files;
}

std::vector<std::string> ParseRepoNames(std::string_view body) {
  std::vector<std::string> names;
  const auto json = Json::Parse(body, kMostValues);
  for (size_t i = 0; json && i < json->size(); ++i) {
    const auto entry = json->At(i);
    const auto id = entry ? entry->Find("id") : std::nullopt;
    std::string name = id ? id->text().value_or("") : "";
    if (IsRepoName(name)) names.push_back(std::move(name));
  }
  return names;
}

std::string NextPage(std::string_view link) {
  // <address>; rel="next", <address>; rel="last"
  while (true) {
    const size_t open = link.find('<');
    const size_t close = link.find('>', open == std::string_view::npos ? 0 : open);
    if (open == std::string_view::npos || close == std::string_view::npos) return {};
    const size_t end = std::min(link.find('<', close), link.size());
    const std::string_view about = link.substr(close, end - close);
    if (about.contains("rel=\"next\"") || about.contains("rel=next")) {
      return std::string(link.substr(open + 1, close - open - 1));
    }
    link = link.substr(end);
  }
}

std::string PlainEtag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return std::string(etag);
}

std::string StrongEtag(const WebHead& head) {
  const std::string* const etag = head.Find("etag");
  const bool is_strong = etag != nullptr && etag->size() >= 3 && etag->size() <= 512 &&
                         etag->front() == '"' && etag->back() == '"' &&
                         std::ranges::all_of(*etag, [](char c) { return c >= ' ' && c <= '~'; });
  return is_strong ? *etag : std::string();
}

bool IsBlobName(std::string_view name) {
  return name.size() >= 16 && name.size() <= 128 && std::ranges::all_of(name, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
         });
}

std::optional<uint64_t> ParseSize(std::string_view text) {
  int64_t value = 0;
  if (text.empty() || text.front() == '-') return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return static_cast<uint64_t>(value);
}

std::optional<uint64_t> SizeHeader(const WebHead& head, const std::string& name) {
  const std::string* const text = head.Find(name);
  return text != nullptr ? ParseSize(*text) : std::nullopt;
}

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) {
    return std::nullopt;
  }
  const auto first = ParseSize(text.substr(0, dash));
  const auto last = ParseSize(text.substr(dash + 1, slash - dash - 1));
  const auto whole = ParseSize(text.substr(slash + 1));
  if (!first || !last || !whole || *first > *last || *last >= *whole) return std::nullopt;
  return ContentRange{.range = {.begin = *first, .end = *last + 1}, .whole = *whole};
}

}  // namespace moestro
