// SPDX-License-Identifier: MIT
#include "doctor/access.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "base/format.h"

namespace moestro {
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

}  // namespace moestro
