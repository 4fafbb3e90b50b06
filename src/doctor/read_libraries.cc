// SPDX-License-Identifier: MIT
#include "doctor/read_libraries.h"

#include <link.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "device/backends.h"
#include "device/devices.h"
#include "store/open_files.h"
#include "store/uring_reader.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

struct Search {
  std::string begin;  // "libllama.so"
  std::string path = {};
};

int LookAt(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const fs::path path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  if (!path.filename().string().starts_with(search.begin)) return 0;
  search.path = path.string();
  return 1;
}

// The version is in the name of the file that the loaded library's name points to.
std::string RunningVersion(std::string begin) {
  Search search{.begin = std::move(begin)};
  ::dl_iterate_phdr(LookAt, &search);
  std::error_code error;
  const fs::path file = fs::canonical(search.path, error);
  return error ? "" : VersionInName(file.string());
}

GgmlFacts ReadGgml() {
  GgmlFacts facts;
  facts.libraries = {
      {.name = "ggml", .built = MOESTRO_GGML_VERSION, .running = RunningVersion("libggml-base.so")},
      {.name = "llama", .built = MOESTRO_LLAMA_VERSION, .running = RunningVersion("libllama.so")}};
  facts.plug_in_folder = PlugInFolder();
  for (const CpuVariant& variant : ListCpuVariants()) {
    constexpr std::string_view kBegin = "libggml-cpu-";
    const std::string stem = fs::path(variant.path).stem().string();
    facts.variants.push_back(
        {.name = stem.substr(std::min(kBegin.size(), stem.size())), .score = variant.score});
  }
  return facts;
}

}  // namespace

RingState RingStateOf(int error) {
  if (error == 0) return RingState::kWorks;
  if (error == EPERM || error == EACCES) return RingState::kForbidden;
  return error == ENOSYS ? RingState::kMissing : RingState::kFails;
}

std::string VersionInName(std::string_view path) {
  constexpr std::string_view kEnding = ".so.";
  const size_t at = path.rfind(kEnding);
  return at == std::string_view::npos ? "" : std::string(path.substr(at + kEnding.size()));
}

void ReadLibraryFacts(SystemFacts& facts) {
  const int error = TryUring();
  facts.ring.state = RingStateOf(error);
  if (error != 0) facts.ring.error = ErrnoText(error);
  facts.ggml = ReadGgml();
  facts.graphics.devices = FindDevices();
  facts.ggml.has_cpu =
      std::ranges::contains(facts.graphics.devices, DeviceKind::kCpu, &DeviceInfo::kind);
  std::error_code ignored;
  facts.graphics.has_vulkan_plug_in =
      fs::exists(fs::path(facts.ggml.plug_in_folder) / "libggml-vulkan.so", ignored);
}

}  // namespace moestro
