// SPDX-License-Identifier: MIT
#include "doctor/access.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/number.h"
#include "base/text.h"

namespace moestro {
namespace {

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    if (!word.empty()) words.push_back(word);
    line.remove_prefix(std::min(word.size() + 1, line.size()));
  }
  return words;
}

bool IsOctal(char c) { return c >= '0' && c <= '7'; }

// The kernel writes blanks, tabs, newlines and backslashes as "\040".
std::string Unescaped(std::string_view word) {
  std::string text;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '\\' && i + 3 < word.size() && IsOctal(word[i + 1]) && IsOctal(word[i + 2]) &&
        IsOctal(word[i + 3])) {
      const int code = (word[i + 1] - '0') * 64 + (word[i + 2] - '0') * 8 + (word[i + 3] - '0');
      text += static_cast<char>(code);
      i += 3;
    } else {
      text += word[i];
    }
  }
  return text;
}

// "36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue"
std::optional<Mount> ParseMount(std::string_view line) {
  const std::vector<std::string_view> words = Words(line);
  const auto dash = std::ranges::find(words, "-");
  const auto at = static_cast<size_t>(dash - words.begin());
  if (at < 6 || words.size() < at + 4) return std::nullopt;
  const size_t colon = words[2].find(':');
  if (colon == std::string_view::npos || !words[4].starts_with('/')) return std::nullopt;
  const auto major = ParseNumber<uint32_t>(words[2].substr(0, colon));
  const auto minor = ParseNumber<uint32_t>(words[2].substr(colon + 1));
  if (!major || !minor) return std::nullopt;
  return Mount{.point = Unescaped(words[4]),
               .file_system = std::string(words[at + 1]),
               .source = Unescaped(words[at + 2]),
               .options = std::string(words[5]) + "," + std::string(words[at + 3]),
               .major = *major,
               .minor = *minor};
}

bool IsBelow(std::string_view path, std::string_view point) {
  if (point == "/") return path.starts_with('/');
  return path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/');
}

}  // namespace

std::vector<Mount> ParseMounts(std::string_view text) {
  std::vector<Mount> mounts;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (auto mount = ParseMount(line)) mounts.push_back(*std::move(mount));
  }
  return mounts;
}

std::optional<Mount> FindMount(const std::vector<Mount>& mounts, std::string_view path) {
  std::optional<Mount> found;
  for (const Mount& mount : mounts) {
    if (!IsBelow(path, mount.point)) continue;
    if (!found || mount.point.size() >= found->point.size()) found = mount;
  }
  return found;
}

namespace {

constexpr uint8_t kRead = 4;
constexpr uint8_t kSearch = 1;

// The kernel's numbers.
constexpr uint16_t kUserTag = 0x02;
constexpr uint16_t kOwningGroupTag = 0x04;
constexpr uint16_t kGroupTag = 0x08;
constexpr uint16_t kMaskTag = 0x10;
constexpr size_t kListHeader = 4;
constexpr size_t kListEntry = 8;

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8U | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

uint8_t Three(uint32_t bits) { return static_cast<uint8_t>(bits & 7U); }

bool IsIn(const UserFacts& user, uint32_t group) {
  return std::ranges::contains(user.groups, group);
}

// Adds up the bits of all groups that fit, though the kernel requires one group that has all:
// callers ask for a single bit, or for two that come together.
uint8_t GroupBits(const UserFacts& user, const PathStep& step, bool& fits) {
  const AccessList& list = *step.list;
  uint8_t bits = 0;
  if (IsIn(user, step.group)) {
    fits = true;
    bits = list.owning_group;
  }
  for (const AccessEntry& entry : list.groups) {
    if (!IsIn(user, entry.id)) continue;
    fits = true;
    bits |= entry.bits;
  }
  return bits & list.mask;
}

}  // namespace

std::optional<AccessList> ParseAccessList(std::string_view bytes) {
  constexpr uint32_t kVersion = 2;
  if (bytes.size() < kListHeader || (bytes.size() - kListHeader) % kListEntry != 0) {
    return std::nullopt;
  }
  if (LittleEndian(bytes.substr(0, kListHeader)) != kVersion) return std::nullopt;
  AccessList list;
  for (size_t at = kListHeader; at < bytes.size(); at += kListEntry) {
    const uint32_t tag = LittleEndian(bytes.substr(at, 2));
    const uint8_t bits = Three(LittleEndian(bytes.substr(at + 2, 2)));
    const uint32_t id = LittleEndian(bytes.substr(at + 4, 4));
    if (tag == kUserTag) list.users.push_back({.id = id, .bits = bits});
    if (tag == kGroupTag) list.groups.push_back({.id = id, .bits = bits});
    if (tag == kOwningGroupTag) list.owning_group = bits;
    if (tag == kMaskTag) list.mask = bits;
  }
  return list;
}

uint8_t BitsFor(const UserFacts& user, const PathStep& step) {
  if (user.id == 0) return 7;
  if (user.id == step.owner) return Three(step.mode >> 6U);
  if (!step.list) return Three(IsIn(user, step.group) ? step.mode >> 3U : step.mode);
  for (const AccessEntry& entry : step.list->users) {
    if (entry.id == user.id) return entry.bits & step.list->mask;
  }
  bool fits = false;
  const uint8_t bits = GroupBits(user, step, fits);
  return fits ? bits : Three(step.mode);
}

std::vector<AccessGap> FindGaps(const UserFacts& user, const std::vector<PathStep>& steps) {
  std::vector<AccessGap> gaps;
  for (const PathStep& step : steps) {
    const uint8_t has = BitsFor(user, step);
    std::string missing;
    if (step.is_target && !step.is_folder && (has & kRead) == 0) missing += 'r';
    if (step.is_folder && (has & kSearch) == 0) missing += 'x';
    if (!missing.empty()) gaps.push_back({step.path, step.is_foreign, missing});
  }
  return gaps;
}

std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain = "/._-+=:,@%";
  const bool is_plain = !text.empty() && std::ranges::all_of(text, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.contains(c);
  });
  if (is_plain) return std::string(text);
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  const bool has_codes = !std::ranges::all_of(text, is_printable);
  std::string word = has_codes ? "$'" : "'";
  for (const char c : text) {
    if (!is_printable(c)) {
      word += Format("\\{:03o}", static_cast<unsigned char>(c));
    } else if (has_codes && (c == '\'' || c == '\\')) {
      word += {'\\', c};
    } else {
      word += c == '\'' ? "'\\''" : std::string(1, c);
    }
  }
  return word + "'";
}

namespace {

// User of the unit packaging/systemd/moestro.service.in.
constexpr std::string_view kUnitUser = "moestro";

// Range of numbers from which systemd takes users that exist only while a service runs.
constexpr uint32_t kFirstDynamic = 61184;
constexpr uint32_t kLastDynamic = 65519;

struct HiddenFolder {
  std::string_view path;
  std::string_view setting;
};
constexpr std::array<HiddenFolder, 5> kHidden = {{{"/home", "ProtectHome"},
                                                  {"/root", "ProtectHome"},
                                                  {"/run/user", "ProtectHome"},
                                                  {"/tmp", "PrivateTmp"},
                                                  {"/var/tmp", "PrivateTmp"}}};
constexpr std::array<std::string_view, 3> kPrivateRoots = {"/var/lib/private", "/var/cache/private",
                                                           "/var/log/private"};

bool LiesIn(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

bool IsAtOrBelow(std::string_view path, std::string_view folder) {
  return path == folder || LiesIn(path, folder);
}

// The service's folder that holds `path`, such as "/var/lib/private/moestro"; empty: `path` lies
// elsewhere.
std::string_view PrivateFolderOf(std::string_view path) {
  for (const std::string_view root : kPrivateRoots) {
    if (LiesIn(path, root)) return path.substr(0, path.find('/', root.size() + 1));
  }
  return {};
}

bool IsOwn(const UserFacts& user, std::string_view folder) {
  return folder.substr(folder.rfind('/') + 1) == user.name;
}

// The setting of the unit that hides `path`; empty: `path` is visible.
std::string_view HiddenBy(const UserFacts& user, std::string_view path) {
  const auto found = std::ranges::find_if(
      kHidden, [&](const HiddenFolder& hidden) { return IsAtOrBelow(path, hidden.path); });
  if (found != kHidden.end()) return found->setting;
  const std::string_view folder = PrivateFolderOf(path);
  return folder.empty() || IsOwn(user, folder) ? std::string_view() : "DynamicUser";
}

}  // namespace

bool IsService(const UserFacts& user) {
  return user.name == kUnitUser || !user.is_known ||
         (user.id >= kFirstDynamic && user.id <= kLastDynamic);
}

bool IsPrivateRoot(std::string_view path) { return std::ranges::contains(kPrivateRoots, path); }

ServiceView ViewOf(const UserFacts& user, const std::vector<PathStep>& steps) {
  ServiceView view;
  if (!IsService(user)) {
    view.steps = steps;
    return view;
  }
  std::optional<uint32_t> owner;  // of the service's own folder
  for (const PathStep& step : steps) {
    if (const std::string_view setting = HiddenBy(user, step.path); !setting.empty()) {
      // A hidden folder itself exists for the service, but is empty.
      const bool is_in_it =
          step.is_target || !std::ranges::contains(kHidden, step.path, &HiddenFolder::path);
      if (view.hidden.empty() && is_in_it) {
        view.hidden = step.path;
        view.setting = setting;
      }
      continue;
    }
    // The unit gives the service its own folder, and all in it that belonged to its last user.
    const std::string_view folder = PrivateFolderOf(step.path);
    if (IsPrivateRoot(step.path)) continue;
    if (!folder.empty() && folder == step.path) owner = step.owner;
    PathStep judged = step;
    if (!folder.empty() && owner == step.owner) judged.owner = user.id;
    view.steps.push_back(std::move(judged));
  }
  return view;
}

}  // namespace moestro
