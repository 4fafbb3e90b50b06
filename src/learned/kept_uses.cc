// SPDX-License-Identifier: MIT
#include "learned/kept_uses.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/cache_folder.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/own_file.h"

namespace moestro {
namespace {

constexpr size_t kCheckDigits = 16;

std::string BeginningOf(const ModelId& model) {
  return Format("moestro uses 1\n{:016x} {} {}\n", model.fingerprint, model.shape.n_layer,
                model.shape.n_expert);
}

std::string CheckOf(std::string_view content) {
  Fnv1a check;
  check.Add(content);
  return Format("{:016x}", check.value());
}

size_t CountExperts(const ModelId& model) {
  return size_t{model.shape.n_layer} * model.shape.n_expert;
}

}  // namespace

std::string KeptUsesFile(const std::string& folder, const ModelId& model) {
  return Format("{}/uses-{:016x}", folder, model.fingerprint);
}

std::vector<uint8_t> KeptUses(const std::string& folder, const ModelId& model) {
  if (folder.empty()) return {};
  const std::string path = KeptUsesFile(folder, model);
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return {};
  const std::string begin = BeginningOf(model);
  const size_t n = CountExperts(model);
  const std::string text = ReadOwnFile(path, begin.size() + n + kCheckDigits);
  const std::string_view checked = std::string_view(text).substr(0, text.size() - kCheckDigits);
  if (!text.starts_with(begin) || text.substr(checked.size()) != CheckOf(checked)) {
    LogWarning("{} is damaged, of another model or not this user's: the start is cold", path);
    return {};
  }
  const std::string_view uses = checked.substr(begin.size());
  return {uses.begin(), uses.end()};
}

void KeepUses(const std::string& folder, const ModelId& model, std::span<const uint8_t> uses) {
  if (folder.empty() || uses.size() != CountExperts(model)) return;
  [[maybe_unused]] const std::error_code made = MakePrivateFolder(folder);  // writing will say so
  std::string content = BeginningOf(model);
  for (const uint8_t n : uses) content += static_cast<char>(n);
  content += CheckOf(content);
  const std::string path = KeptUsesFile(folder, model);
  if (WriteOwnFile(path, content)) return;
  LogInfo("which experts decode used is not kept: cannot write {}: {}", path, std::strerror(errno));
}

}  // namespace moestro
