// SPDX-License-Identifier: MIT
#include "cli/plan_subject.h"

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "base/output_file.h"
#include "cli/hub_names.h"
#include "hub/hub_cache.h"
#include "hub/hub_client.h"
#include "hub/model_name.h"
#include "model/byte_source.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

Result<PlanSubject> OfFile(const std::string& path, const std::string& engine) {
  TRY(ModelToLoad model, ModelToLoad::Open(path, engine));
  std::error_code unknown;
  return PlanSubject{.model = std::move(model),
                     .file = path,
                     .folder = fs::absolute(path, unknown).parent_path().string()};
}

// Ranges of a file at an address.
std::unique_ptr<ByteSource> Ranged(HubClient& client, const std::string& name,
                                   const std::string& address, uint64_t size) {
  return std::make_unique<RangedBytes>(
      name, size, [&client, address](uint64_t offset, uint64_t length) -> Result<std::string> {
        return client.Read(address, offset, length);
      });
}

// Of a repository: its files by path, with their sizes.
OpenBytes OpenIn(HubClient& client, const std::string& repo, const HubListing& listing) {
  std::map<std::string, uint64_t> sizes;
  for (const HubFile& file : listing.files) sizes.emplace(file.path, file.size);
  return [&client, repo, commit = listing.commit, sizes = std::move(sizes)](
             const std::string& path) -> Result<std::unique_ptr<ByteSource>> {
    const auto found = sizes.find(path);
    if (found == sizes.end()) return Fail(Errc::kIo, "{} has no file {}", repo, path);
    return Ranged(client, path, client.AddressOf(repo, commit, path), found->second);
  };
}

OpenBytes OpenAt(HubClient& client) {
  return [&client](const std::string& address) -> Result<std::unique_ptr<ByteSource>> {
    TRY(const FilePlace place, client.Find(address));
    return Ranged(client, address, address, place.size);
  };
}

Result<PlanSubject> OfRepository(const ModelName& name, const std::string& engine,
                                 const HubSettings& settings, StopSignal& stop) {
  const HubCache cache(settings.cache);
  TRY(const std::optional<CachedModel> cached, cache.Find(name));
  if (cached) return OfFile(cached->path, engine);
  if (settings.is_offline) {
    return Fail(Errc::kIo, "{} is not here, and no request may leave this machine (offline)",
                TextOf(name));
  }
  TRY(HubClient client, HubClient::Create(settings, stop));
  TRY(const HubListing listing, client.Files(name.repo, name.revision));
  TRY(const HubModel chosen, ChooseModel(listing.files, name));
  TRY(ModelToLoad model,
      ModelToLoad::Open(chosen.files.front().path, engine, OpenIn(client, name.repo, listing)));
  PlanSubject subject{.model = std::move(model),
                      .folder = settings.cache,
                      .to_fetch = chosen.bytes(),
                      .choices = ModelsIn(listing.files),
                      .label = chosen.label()};
  TRY(subject.free_bytes, FreeBytesAt(settings.cache));
  return subject;
}

Result<PlanSubject> AtAddress(const std::string& address, const std::string& engine,
                              const HubSettings& settings, StopSignal& stop) {
  if (settings.is_offline) {
    return Fail(Errc::kIo, "{}: no request may leave this machine (offline)", address);
  }
  TRY(HubClient client, HubClient::Create(settings, stop));
  TRY(ModelToLoad model, ModelToLoad::Open(address, engine, OpenAt(client)));
  const uint64_t bytes = model.gguf().file_bytes();
  std::error_code unknown;
  PlanSubject subject{
      .model = std::move(model), .folder = fs::current_path(unknown).string(), .to_fetch = bytes};
  TRY(subject.free_bytes, FreeBytesAt(subject.folder));
  return subject;
}

}  // namespace

Result<PlanSubject> FindSubject(const std::string& text, const std::string& engine,
                                const HubSettings& settings, StopSignal& stop) {
  TRY(const ModelName name, ModelNameOf(text, settings));
  if (name.kind == ModelNameKind::kPath) return OfFile(name.path, engine);
  if (name.kind == ModelNameKind::kAddress) return AtAddress(name.address, engine, settings, stop);
  return OfRepository(name, engine, settings, stop);
}

}  // namespace moestro
