// SPDX-License-Identifier: MIT
#include "hub/model_name.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "base/terminal.h"
#include "base/text.h"
#include "hub/web_request.h"

namespace moestro {
namespace {

constexpr std::string_view kHubPrefixes[] = {"hf://", "hf:"};
constexpr size_t kMostNameBytes = 96;  // the hub's limit for owner and repository together
constexpr size_t kMostPathBytes = 1024;
constexpr size_t kMostPartBytes = 200;  // of a path; file systems allow 255, and we add suffixes
constexpr std::string_view kPublicHosts[] = {"https://huggingface.co", "https://hf.co",
                                             "https://www.huggingface.co"};

constexpr std::string_view kModelEnding = ".gguf";

bool IsLetterOrDigit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool IsWord(std::string_view text, std::string_view others, size_t most) {
  return !text.empty() && text.size() <= most && std::ranges::all_of(text, [&](char c) {
    return IsLetterOrDigit(c) || others.contains(c);
  });
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Cuts the part behind the last `mark` off `text` and returns it; nullopt: no mark.
std::optional<std::string> TakeBehind(std::string_view& text, char mark) {
  const size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return std::nullopt;
  std::string behind(text.substr(at + 1));
  text = text.substr(0, at);
  return behind;
}

bool IsQuantisation(std::string_view text) { return IsWord(text, "._-", 64); }

// owner/repo[:quantisation][@revision] or owner/repo/file.gguf[@revision], either mark first.
std::optional<ModelName> HubName(std::string_view text) {
  ModelName name{.kind = ModelNameKind::kHub};
  // "owner/repo:Q4@main" or "owner/repo@main:Q4": the marks are none of a repository's letters.
  const bool quantisation_last =
      text.rfind(':') != std::string_view::npos && text.rfind(':') > text.rfind('@') + 1;
  for (const char mark : quantisation_last ? std::string_view(":@") : std::string_view("@:")) {
    const auto behind = TakeBehind(text, mark);
    if (!behind) continue;
    if (mark == '@') {
      if (!IsRevision(*behind)) return std::nullopt;
      name.revision = *behind;
    } else {
      if (!IsQuantisation(*behind)) return std::nullopt;
      name.quantisation = *behind;
    }
  }
  const size_t owner_end = text.find('/');
  if (owner_end == std::string_view::npos) return std::nullopt;
  const size_t repo_end = std::min(text.find('/', owner_end + 1), text.size());
  name.repo = text.substr(0, repo_end);
  if (!IsRepoName(name.repo)) return std::nullopt;
  if (repo_end == text.size()) return name;
  name.file = text.substr(repo_end + 1);
  if (!IsSafePath(name.file) || !IsNamedWith(name.file, kModelEnding) ||
      !name.quantisation.empty()) {
    return std::nullopt;
  }
  return name;
}

std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto digit = [&](size_t at) -> int {
      if (at >= text.size() || std::isxdigit(static_cast<unsigned char>(text[at])) == 0) return -1;
      const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(text[at])));
      return c <= '9' ? c - '0' : c - 'a' + 10;
    };
    if (digit(i + 1) < 0 || digit(i + 2) < 0) return std::nullopt;
    out += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
    i += 2;
  }
  return out;
}

// Parses the address of a repository's page or of one of its files, as a browser shows it, or a
// name. `path`: the text behind the host.
std::optional<ModelName> NameOfPage(std::string_view path) {
  const std::vector<std::string_view> parts = Split(path, '/');
  if (parts.size() < 2) return std::nullopt;
  constexpr std::string_view kPages[] = {"resolve", "blob", "raw", "tree"};
  const bool is_page = parts.size() > 2 && std::ranges::contains(kPages, parts[2]);
  if (!is_page) return path.contains('%') ? std::nullopt : HubName(path);
  ModelName name{.kind = ModelNameKind::kHub};
  name.repo = std::string(parts[0]) + "/" + std::string(parts[1]);
  if (!IsRepoName(name.repo) || parts.size() < 4) return std::nullopt;
  const bool is_file = parts[2] != "tree";
  const auto revision = PercentDecoded(parts[3]);
  if (!revision || !IsRevision(*revision)) return std::nullopt;
  name.revision = *revision;
  if (!is_file) return name;
  const size_t before = parts[0].size() + parts[1].size() + parts[2].size() + parts[3].size() + 4;
  if (path.size() <= before) return std::nullopt;
  const auto file = PercentDecoded(path.substr(before));
  if (!file || !IsSafePath(*file) || !IsNamedWith(*file, kModelEnding)) return std::nullopt;
  name.file = *file;
  return name;
}

Result<ModelName> NameOfAddress(const std::string& text, const std::string& endpoint) {
  const auto origin = OriginOf(text);
  const bool is_clean = std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
  if (!origin || !is_clean) {
    return Fail(Errc::kUsage, "'{}' is no address of a model; write https://HOST/PATH.gguf",
                Printable(text));
  }
  std::string_view plain = text;
  plain = plain.substr(0, plain.find_first_of("?#"));
  while (plain.ends_with('/')) plain.remove_suffix(1);
  const bool is_endpoint = OriginOf(endpoint) == origin;
  const bool is_hub = plain.starts_with(endpoint + "/");
  const bool is_public = std::ranges::find(kPublicHosts, *origin) != std::end(kPublicHosts);
  if (is_hub || is_public) {
    const size_t host_end = is_hub ? endpoint.size() : plain.find('/', plain.find("://") + 3);
    if (auto name =
            host_end < plain.size() ? NameOfPage(plain.substr(host_end + 1)) : std::nullopt) {
      return *name;
    }
    return Fail(Errc::kUsage,
                "'{}' names no repository and no GGUF file of one; write owner/repo:QUANTISATION",
                Printable(text));
  }
  if (IsPlainHttp(text) && !is_endpoint && !IsLoopback(text)) {
    return Fail(Errc::kUsage,
                "'{}' is not encrypted, so what comes can be anything; write https://",
                Printable(text));
  }
  if (!IsNamedWith(plain, kModelEnding)) {
    return Fail(Errc::kUsage, "'{}' does not end in .gguf, so it is no model", Printable(text));
  }
  return ModelName{.kind = ModelNameKind::kAddress, .address = text};
}

// An address of the hub that was typed without "https://". A word without a dot or a port in front
// is a folder, even where a hub is called so.
std::optional<std::string> WithScheme(std::string_view text, std::string_view endpoint) {
  const auto completed = [&](std::string_view hub) -> std::optional<std::string> {
    const size_t scheme = hub.find("://");
    if (scheme == std::string_view::npos) return std::nullopt;  // no endpoint
    const std::string_view host = hub.substr(scheme + 3);
    const std::string_view typed = text.substr(0, host.size());
    const bool is_host = host.substr(0, host.find('/')).find_first_of(".:") != std::string::npos;
    if (!is_host || LowerCase(typed) != LowerCase(host) || text.substr(typed.size(), 1) != "/") {
      return std::nullopt;
    }
    return std::string(hub) + std::string(text.substr(typed.size()));
  };
  if (auto whole = completed(endpoint)) return whole;
  for (const std::string_view hub : kPublicHosts) {
    if (auto whole = completed(hub)) return whole;
  }
  return std::nullopt;
}

}  // namespace

bool IsRepoName(std::string_view repo) {
  const std::vector<std::string_view> parts = Split(repo, '/');
  if (parts.size() != 2 || repo.size() > kMostNameBytes + 1) return false;
  return std::ranges::all_of(parts, [](std::string_view part) {
    return IsWord(part, "._-", kMostNameBytes) && !part.contains("--") && !part.contains("..") &&
           part.front() != '-' && part.front() != '.' && part.back() != '-' && part.back() != '.';
  });
}

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kMostPathBytes || FindInvalidUtf8(path) != path.size()) {
    return false;
  }
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f || c == '\\'; };
  if (std::ranges::any_of(path, is_control)) return false;
  return std::ranges::none_of(Split(path, '/'), [](std::string_view part) {
    return part.empty() || part == "." || part == ".." || part.size() > kMostPartBytes;
  });
}

bool IsRevision(std::string_view revision) {
  return IsWord(revision, "._-/", 200) && IsSafePath(revision);
}

bool IsCommit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<ModelName> ParseModelName(const std::string& text, const std::string& endpoint,
                                 const PathExists& exists) {
  if (exists(text)) return ModelName{.kind = ModelNameKind::kPath, .path = text};
  for (const std::string_view prefix : kHubPrefixes) {
    if (!text.starts_with(prefix)) continue;
    if (auto name = HubName(std::string_view(text).substr(prefix.size()))) return *name;
    return Fail(Errc::kUsage,
                "'{}' names no model; write hf:owner/repo, hf:owner/repo:QUANTISATION or "
                "hf:owner/repo/FILE.gguf, with @REVISION behind it if you like",
                Printable(text));
  }
  if (text.contains("://")) return NameOfAddress(text, endpoint);
  if (const auto address = WithScheme(text, endpoint)) return NameOfAddress(*address, endpoint);
  const auto name = IsNamedWith(text, kModelEnding) ? std::nullopt : HubName(text);
  if (name && name->file.empty()) return *name;
  return ModelName{.kind = ModelNameKind::kPath, .path = text};
}

std::string TextOf(const ModelName& name) {
  if (name.kind == ModelNameKind::kPath) return name.path;
  if (name.kind == ModelNameKind::kAddress) return name.address;
  std::string text = name.file.empty() ? name.repo : "hf:" + name.repo + "/" + name.file;
  if (!name.quantisation.empty()) text += ":" + name.quantisation;
  if (name.revision != "main") text += "@" + name.revision;
  // Without a prefix such a repository's name would be a path.
  return name.file.empty() && IsNamedWith(text, kModelEnding) ? "hf:" + text : text;
}

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
