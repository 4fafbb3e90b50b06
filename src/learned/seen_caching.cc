// SPDX-License-Identifier: MIT
#include "learned/seen_caching.h"

#include <filesystem>
#include <system_error>

#include "base/cache_folder.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "learned/json_fields.h"

namespace moestro {
namespace {

constexpr JsonFileKind kCachingKind{
    .format = "moestro caching", .version = 1, .what = "how a model cached"};

std::string CachingPath(const std::string& folder, uint64_t fingerprint) {
  return Format("{}/caching-{:016x}.json", folder, fingerprint);
}

}  // namespace

void KeepCaching(const std::string& folder, uint64_t fingerprint, const SeenCaching& seen) {
  if (folder.empty()) return;
  [[maybe_unused]] const std::error_code made = MakePrivateFolder(folder);  // writing will say so
  Json file = BeginJsonFile(kCachingKind);
  file.Set("share", seen.share).Set("missing", seen.missing);
  const Status written = WriteJsonFile(CachingPath(folder, fingerprint), file);
  if (!written) LogInfo("how a model cached is not kept: {}", written.error().message);
}

std::optional<SeenCaching> KeptCaching(const std::string& folder, uint64_t fingerprint) {
  if (folder.empty()) return std::nullopt;
  const std::string path = CachingPath(folder, fingerprint);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  SeenCaching seen;
  const Status read = ReadJsonFile(path, kCachingKind, [&seen](JsonView view) -> Status {
    const Fields fields(view, "the file");
    TRY(seen.share, fields.Number("share", 0.0, 1.0));
    TRY(seen.missing, fields.Number("missing", 0.0, 1.0));
    return {};
  });
  if (read) return seen;
  LogInfo("how a model cached is not used: {}", read.error().message);
  return std::nullopt;
}

}  // namespace moestro
