// SPDX-License-Identifier: MIT
#include "commands/demo_model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/cache_folder.h"
#include "base/format.h"
#include "base/log.h"
#include "base/small_file.h"
#include "base/unique_fd.h"

// Defined by cmake/Embed.cmake.
extern "C" {
extern const char moestro_demo_model[];
extern const unsigned long moestro_demo_model_size;
}
extern const char moestro_demo_model_sha256[];

namespace moestro {
namespace {

std::string_view Embedded() { return {moestro_demo_model, moestro_demo_model_size}; }

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool HasEmbeddedBytes(const std::string& path) {
  const Result<UniqueFd> file = OpenRegularFile(path);
  struct stat info{};
  if (!file || fstat(file->get(), &info) != 0) return false;
  if (std::cmp_not_equal(info.st_size, Embedded().size())) return false;
  std::vector<char> buffer(kMiB);
  std::string_view rest = Embedded();
  while (!rest.empty()) {
    const ssize_t n = read(file->get(), buffer.data(), std::min(buffer.size(), rest.size()));
    if (n <= 0) return false;
    const auto got = static_cast<size_t>(n);
    if (rest.substr(0, got) != std::string_view(buffer.data(), got)) return false;
    rest.remove_prefix(got);
  }
  return true;
}

// Gives the file its name. A correct file that another process has put there meanwhile stays,
// because that process has it open and would end if the file were replaced.
bool Publish(const std::string& temporary, const std::string& path) {
  if (link(temporary.c_str(), path.c_str()) != 0 && (errno != EEXIST || !HasEmbeddedBytes(path))) {
    return rename(temporary.c_str(), path.c_str()) == 0;
  }
  unlink(temporary.c_str());
  return true;
}

// Written under another name first, so that no program ever reads half a model under the right one.
bool Install(const std::string& folder, const std::string& path) {
  if (MakePrivateFolder(folder)) return false;
  std::string temporary = path + ".XXXXXX";
  const UniqueFd file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) return false;
  const bool written =
      WriteAll(file.get(), Embedded()) && fchmod(file.get(), 0644) == 0 && Publish(temporary, path);
  if (!written) unlink(temporary.c_str());
  return written;
}

// The descriptor stays open for the rest of the process, because the path names it.
Result<std::string> InMemory() {
  const int fd = memfd_create("moestro-demo-model", MFD_CLOEXEC);
  if (fd < 0 || !WriteAll(fd, Embedded())) {
    return Fail(Errc::kIo, "cannot unpack the demo model ({} MiB): {}", Embedded().size() / kMiB,
                std::strerror(errno));
  }
  return Format("/proc/self/fd/{}", fd);
}

}  // namespace

Result<std::string> DemoModelPathIn(const std::string& folder) {
  if (folder.empty()) return InMemory();
  // The hash in the name keeps versions of the program out of each other's way.
  const std::string path =
      Format("{}/stories-moe-{:.16}.gguf", folder, std::string_view(moestro_demo_model_sha256));
  if (HasEmbeddedBytes(path) || Install(folder, path)) return path;
  LogInfo("cannot write the demo model to {}, keeping it in memory", folder);
  return InMemory();
}

Result<std::string> DemoModelPath() { return DemoModelPathIn(CacheFolder()); }

}  // namespace moestro
