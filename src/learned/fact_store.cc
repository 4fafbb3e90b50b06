// SPDX-License-Identifier: MIT
#include "learned/fact_store.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/cache_files.h"
#include "base/hash.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr size_t kCheckDigits = 16;

// The file before its value. The key's length marks the value's begin.
std::string BeginningOf(const FactKey& key) {
  return Format("moestro fact 1\n{} {}\n{}\n", key.file, key.text.size(), key.text);
}

std::string CheckOf(std::string_view content) {
  Fnv1a check;
  check.Add(content);
  return Format("{:016x}", check.value());
}

}  // namespace

std::optional<std::string> KeptFact(const std::string& folder, const FactKey& key) {
  if (folder.empty()) return std::nullopt;
  const std::string path = folder + "/" + key.file;
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return std::nullopt;
  const std::string begin = BeginningOf(key);
  const std::string text = ReadOwnFile(path, begin.size() + kMostFactBytes + kCheckDigits);
  const bool is_whole = text.size() >= begin.size() + kCheckDigits;
  const std::string_view checked =
      std::string_view(text).substr(0, is_whole ? text.size() - kCheckDigits : 0);
  if (!is_whole || !checked.starts_with(begin) || text.substr(checked.size()) != CheckOf(checked)) {
    LogInfo("{} is damaged, of another key or not this user's; it is not used", path);
    return std::nullopt;
  }
  return std::string(checked.substr(begin.size()));
}

void KeepFact(const std::string& folder, const FactKey& key, std::string_view value) {
  if (folder.empty() || value.size() > kMostFactBytes) return;
  [[maybe_unused]] const std::error_code made =
      MakePrivateFolder(folder);  // the write below fails, too
  std::string content = BeginningOf(key);
  content += value;
  content += CheckOf(content);
  const std::string path = folder + "/" + key.file;
  if (WriteOwnFile(path, content)) return;
  LogInfo("a measured fact is not kept: cannot write {}: {}", path, std::strerror(errno));
}

}  // namespace moestro
