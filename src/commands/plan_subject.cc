// SPDX-License-Identifier: MIT
#include "commands/plan_subject.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "base/output_file.h"
#include "base/unique_fd.h"
#include "commands/hub_names.h"
#include "hub/hub_cache.h"
#include "hub/hub_client.h"
#include "hub/model_name.h"

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

// A source that copies each range it returns.
class CopiedBytes final : public ByteSource {
 public:
  CopiedBytes(std::unique_ptr<ByteSource> from, UniqueFd to, std::string path)
      : from_(std::move(from)), to_(std::move(to)), path_(std::move(path)) {}
  const std::string& name() const override { return from_->name(); }
  const FileStamp& stamp() const override { return from_->stamp(); }
  Result<std::span<const char>> BytesAt(uint64_t offset) override {
    TRY(const std::span<const char> bytes, from_->BytesAt(offset));
    std::span<const char> rest = bytes;
    // Bytes of a range that have been copied already are skipped.
    if (offset < end_) rest = rest.subspan(std::min<uint64_t>(end_ - offset, rest.size()));
    uint64_t at = offset + (bytes.size() - rest.size());
    while (!rest.empty()) {
      const ssize_t n = ::pwrite(to_.get(), rest.data(), rest.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Fail(Errc::kIo, "{}: {}; set TMPDIR", path_, std::strerror(errno));
      rest = rest.subspan(static_cast<size_t>(n));
      at += static_cast<uint64_t>(n);
    }
    end_ = std::max(end_, at);
    return bytes;
  }

 private:
  std::unique_ptr<ByteSource> from_;
  UniqueFd to_;
  std::string path_;
  uint64_t end_ = 0;  // end of the copied bytes
};

// Ranges of a file at an address.
std::unique_ptr<ByteSource> Ranged(HubClient& client, const std::string& name,
                                   const std::string& address, uint64_t size) {
  return std::make_unique<RangedBytes>(
      name, size, [&client, address](uint64_t offset, uint64_t length) -> Result<std::string> {
        return client.Read(address, offset, length);
      });
}

// Opens files of a repository by path, with their listed sizes.
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
  TRY(std::shared_ptr<DirectoryCopies> copies, DirectoryCopies::Create());
  TRY(ModelToLoad model, ModelToLoad::Open(chosen.files.front().path, engine,
                                           copies->CopyWhat(OpenIn(client, name.repo, listing))));
  PlanSubject subject{.model = std::move(model),
                      .copies = std::move(copies),
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
  TRY(std::shared_ptr<DirectoryCopies> copies, DirectoryCopies::Create());
  TRY(ModelToLoad model, ModelToLoad::Open(address, engine, copies->CopyWhat(OpenAt(client))));
  const uint64_t bytes = model.gguf().file_bytes();
  std::error_code unknown;
  PlanSubject subject{.model = std::move(model),
                      .copies = std::move(copies),
                      .folder = fs::current_path(unknown).string(),
                      .to_fetch = bytes};
  TRY(subject.free_bytes, FreeBytesAt(subject.folder));
  return subject;
}

}  // namespace

Result<std::shared_ptr<DirectoryCopies>> DirectoryCopies::Create() {
  std::error_code none;
  std::string folder = (fs::temp_directory_path(none) / "moestro-plan-XXXXXX").string();
  if (none || ::mkdtemp(folder.data()) == nullptr) {
    return Fail(Errc::kIo, "cannot make a folder such as {}: {}; set TMPDIR", folder,
                std::strerror(errno));
  }
  return std::shared_ptr<DirectoryCopies>(new DirectoryCopies(std::move(folder)));
}

DirectoryCopies::~DirectoryCopies() {
  std::error_code stays;
  fs::remove_all(folder_, stays);
}

OpenBytes DirectoryCopies::CopyWhat(OpenBytes open) {
  return [this,
          open = std::move(open)](const std::string& name) -> Result<std::unique_ptr<ByteSource>> {
    TRY(std::unique_ptr<ByteSource> from, open(name));
    // An address may end with a question.
    const std::string base = fs::path(name.substr(0, name.find('?'))).filename().string();
    std::string path = fs::path(folder_) / (base.empty() ? "model.gguf" : base);
    UniqueFd to(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (to.get() < 0 || ::ftruncate(to.get(), static_cast<off_t>(from->stamp().size)) != 0) {
      return Fail(Errc::kIo, "cannot make {} of {} bytes for the directory of {}: {}; set TMPDIR",
                  path, from->stamp().size, name, std::strerror(errno));
    }
    if (first_.empty()) first_ = path;
    return std::make_unique<CopiedBytes>(std::move(from), std::move(to), std::move(path));
  };
}

Result<PlanSubject> FindSubject(const std::string& text, const std::string& engine,
                                const HubSettings& settings, StopSignal& stop) {
  TRY(const ModelName name, ModelNameOf(text, settings));
  if (name.kind == ModelNameKind::kPath) return OfFile(name.path, engine);
  if (name.kind == ModelNameKind::kAddress) return AtAddress(name.address, engine, settings, stop);
  return OfRepository(name, engine, settings, stop);
}

}  // namespace moestro
