// SPDX-License-Identifier: MIT
#include "serve/prefix_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/hash.h"
#include "base/log.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kEnding = ".prefix";

struct FoundFile {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type used;
};

// All models' files, the one used longest ago first.
std::vector<FoundFile> FindFiles(const std::string& folder) {
  std::vector<FoundFile> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != kEnding) continue;
    std::error_code gone;
    const uint64_t bytes = it->file_size(gone);
    const fs::file_time_type used = gone ? fs::file_time_type{} : it->last_write_time(gone);
    if (!gone) files.push_back({.path = it->path(), .bytes = bytes, .used = used});
  }
  std::ranges::sort(files, {}, &FoundFile::used);
  return files;
}

void Touch(const std::string& path) {
  std::error_code ignored;  // then it counts as used earlier
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

}  // namespace

PrefixFiles::PrefixFiles(Engine& engine, std::string folder, std::string key, uint64_t most_bytes)
    : engine_(engine),
      folder_(most_bytes > 0 ? std::move(folder) : ""),
      key_(std::move(key)),
      begin_(Format("{:016x}-", engine.id().fingerprint)),
      most_bytes_(most_bytes) {
  if (folder_.empty()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    LogWarning("prefixes are not kept on disk: cannot make {}: {}", folder_, error.message());
    folder_.clear();
    return;
  }
  Scan();
}

void PrefixFiles::Scan() {
  for (const FoundFile& file : FindFiles(folder_)) {
    if (!file.path.filename().string().starts_with(begin_)) continue;
    Result<SavedTokens> saved = engine_.PeekSequence(file.path.string());
    if (!saved) {
      LogInfo("{}", saved.error().message);
      continue;
    }
    if (saved->notes != key_) continue;
    entries_.push_back(
        {.path = file.path.string(), .tokens = std::move(saved->tokens), .bytes = file.bytes});
  }
}

std::optional<PrefixMatch> PrefixFiles::Find(std::span<const Token> tokens, uint32_t most) const {
  return LongestPrefix(
      entries_, [](const Entry& entry) { return std::span<const Token>(entry.tokens); }, tokens,
      most);
}

Result<Sequence> PrefixFiles::Restore(const PrefixMatch& match) {
  const std::string path = entries_[match.index].path;
  Result<SavedSequence> saved = engine_.RestoreSequence(path);
  if (!saved) {
    const Errc code = saved.error().code;
    if (code != Errc::kInvalidRequest) Forget(match.index, code == Errc::kInvalidFile);
    return std::unexpected(std::move(saved).error());
  }
  Touch(path);
  return std::move(saved->sequence);
}

Status PrefixFiles::Save(const Sequence& sequence) {
  const std::span<const Token> tokens = sequence.tokens();
  for (const Entry& entry : entries_) {
    if (!std::ranges::starts_with(entry.tokens, tokens)) continue;
    Touch(entry.path);
    return {};
  }
  Fnv1a hash;
  hash.Add({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  const std::string path = Format("{}/{}{:016x}{}", folder_, begin_, hash.value(), kEnding);
  TRY_STATUS(engine_.SaveSequence(sequence, key_, path));
  for (size_t i = entries_.size(); i-- > 0;) {
    if (std::ranges::starts_with(tokens, entries_[i].tokens)) Forget(i, true);
  }
  std::error_code unknown;
  const uint64_t bytes = fs::file_size(path, unknown);
  entries_.push_back(
      {.path = path, .tokens = {tokens.begin(), tokens.end()}, .bytes = unknown ? 0 : bytes});
  MakeRoom();
  return {};
}

void PrefixFiles::MakeRoom() {
  std::vector<FoundFile> files = FindFiles(folder_);
  uint64_t bytes = 0;
  for (const FoundFile& file : files) bytes += file.bytes;
  for (const FoundFile& file : files) {
    if (bytes <= most_bytes_) return;
    std::error_code gone;
    fs::remove(file.path, gone);
    bytes -= file.bytes;
    std::erase_if(entries_, [&](const Entry& e) { return e.path == file.path.string(); });
  }
}

void PrefixFiles::Forget(size_t index, bool removes) {
  std::error_code gone;
  if (removes) fs::remove(entries_[index].path, gone);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
}

uint64_t PrefixFiles::bytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.bytes;
  return bytes;
}

}  // namespace moestro
