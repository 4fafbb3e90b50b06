// SPDX-License-Identifier: MIT
#include "serve/prefix_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/cache_files.h"
#include "base/hash.h"
#include "base/terminal.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kEnding = ".prefix";

struct FoundFile {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type used;
};

// Removes other users' rights to a file: earlier versions granted them.
void TakeBackFromOthers(const fs::path& path) {
  std::error_code error;
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  const bool is_private = (fs::status(path, error).permissions() & kOthers) == fs::perms::none;
  if (!is_private) fs::permissions(path, kOthers, fs::perm_options::remove, error);
  if (error) LogWarning("others may read {}: {}", path.string(), error.message());
}

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

// Everything that keys and values depend on beside tokens, and the caller's key.
uint64_t OriginHash(const KvOrigin& origin, const std::string& key) {
  Fnv1a hash;
  hash.AddNumber(origin.weights);
  hash.AddNumber(uint64_t{origin.choices.size()});
  hash.Add(origin.choices);
  hash.Add(key);
  return hash.value();
}

void Touch(const std::string& path) {
  std::error_code ignored;  // after an error the file counts as used earlier
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

}  // namespace

PrefixFiles::PrefixFiles(Engine& engine, std::string folder, std::string key, uint64_t most_bytes)
    : engine_(engine),
      folder_(most_bytes > 0 ? std::move(folder) : ""),
      key_(std::move(key)),
      model_begin_(Format("{:016x}-", engine.id().fingerprint)),
      most_bytes_(most_bytes) {
  if (folder_.empty()) return;
  if (const std::error_code error = MakePrivateFolder(folder_)) {
    TurnOff(Format("cannot make {}: {}", folder_, error.message()));
    return;
  }
  WarnIfOpenToOthers(folder_);
  Refresh();
}

void PrefixFiles::TurnOff(const std::string& why) {
  LogWarning("prefixes are not kept on disk: {}", why);
  folder_.clear();
  entries_.clear();
}

// Takes the engine's present origin. An engine that has lost its device computes keys and values in
// another way from then on, so files from before no longer match. False: no files are kept.
bool PrefixFiles::Refresh() {
  if (!is_on()) return false;
  Result<KvOrigin> origin = engine_.kv_origin();
  if (!origin) {
    TurnOff(origin.error().message);
    return false;
  }
  if (*origin == origin_) return true;
  origin_ = *std::move(origin);
  begin_ = model_begin_ + Format("{:016x}-", OriginHash(origin_, key_));
  entries_.clear();
  Scan();
  return true;
}

void PrefixFiles::Scan() {
  size_t others = 0;
  for (const FoundFile& file : FindFiles(folder_)) {
    TakeBackFromOthers(file.path);
    const std::string name = file.path.filename().string();
    if (!name.starts_with(begin_)) {
      others += name.starts_with(model_begin_) ? 1 : 0;
      continue;
    }
    Result<SavedTokens> saved = engine_.PeekSequence(file.path.string());
    if (!saved) {
      LogInfo("{}", saved.error().message);
      continue;
    }
    if (saved->notes != key_) continue;
    entries_.push_back({.path = file.path.string(),
                        .tokens = std::move(saved->tokens),
                        .checkpoints = std::move(saved->checkpoints),
                        .bytes = file.bytes});
  }
  if (others == 0) return;
  LogInfo(
      "{} prefixes in {} are of a model with the same header, but of other weights, settings, "
      "template or version: they are not used",
      others, folder_);
}

std::optional<PrefixMatch> PrefixFiles::Find(std::span<const Token> tokens, uint32_t most) {
  if (!Refresh()) return std::nullopt;
  return LongestPrefix(
      entries_, [](const Entry& entry) { return std::span<const Token>(entry.tokens); },
      [this](const Entry& entry, uint32_t common) { return Reach(entry, common); }, tokens, most);
}

// The largest number of first tokens, up to `n`, that the file's text can go on from.
uint32_t PrefixFiles::Reach(const Entry& entry, uint32_t n) const {
  if (!engine_.facts().has_states || n == entry.tokens.size()) return n;
  const auto after = std::ranges::upper_bound(entry.checkpoints, n);
  return after == entry.checkpoints.begin() ? 0 : *std::prev(after);
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
  if (!Refresh()) return {};
  const std::span<const Token> tokens = sequence.tokens();
  for (const Entry& entry : entries_) {
    if (!std::ranges::starts_with(entry.tokens, tokens)) continue;
    if (Reach(entry, static_cast<uint32_t>(tokens.size())) < tokens.size()) continue;
    Touch(entry.path);
    return {};
  }
  Fnv1a hash;
  hash.Add({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  const std::string path = Format("{}/{}{:016x}{}", folder_, begin_, hash.value(), kEnding);
  TRY_STATUS(engine_.SaveSequence(sequence, key_, OutputPath::OfOwn(path)));
  for (size_t i = entries_.size(); i-- > 0;) {
    if (std::ranges::starts_with(tokens, entries_[i].tokens)) Forget(i, true);
  }
  std::error_code unknown;
  const uint64_t bytes = fs::file_size(path, unknown);
  // For the positions from which the text can go on.
  const Result<SavedTokens> saved = engine_.PeekSequence(path);
  entries_.push_back({.path = path,
                      .tokens = {tokens.begin(), tokens.end()},
                      .checkpoints = saved ? saved->checkpoints : std::vector<uint32_t>(),
                      .bytes = unknown ? 0 : bytes});
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
