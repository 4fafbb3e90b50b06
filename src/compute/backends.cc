// SPDX-License-Identifier: MIT
#include "compute/backends.h"

#include <dlfcn.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"
#include "compute/backend_calls.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

void BeQuiet() {
  ggml_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) PrintOnStderr(text);
      },
      nullptr);
}

bool has_cpu() { return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != nullptr; }

// The score that a plug-in for one level of instruction sets gives itself on this machine; 0: the
// plug-in cannot be used here.
int ScoreOf(const fs::path& plug_in) {
  void* object = dlopen(plug_in.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) return 0;
  auto* score = reinterpret_cast<int (*)()>(dlsym(object, "ggml_backend_score"));
  const int worth = score != nullptr ? score() : 0;
  dlclose(object);
  return worth;
}

}  // namespace

std::string PlugInFolder() { return MOESTRO_GGML_BACKENDS; }

std::vector<CpuVariant> ListCpuVariants() {
  std::vector<CpuVariant> variants;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(PlugInFolder(), ignored)) {
    if (!entry.path().filename().string().starts_with("libggml-cpu-")) continue;
    variants.push_back({.path = entry.path().string(), .score = ScoreOf(entry.path())});
  }
  std::ranges::sort(variants, {}, &CpuVariant::path);
  return variants;
}

void LoadCpuBackend() {
  BeQuiet();
  if (has_cpu()) return;
  const std::vector<CpuVariant> variants = ListCpuVariants();
  const auto best = std::ranges::max_element(variants, {}, &CpuVariant::score);
  if (best != variants.end() && best->score > 0) LoadPlugIn(best->path);
  if (!has_cpu()) LoadAllPlugIns();
}

void LoadDeviceBackends() {
  LoadCpuBackend();
  constexpr std::array kNames = {"CUDA", "HIP", "ROCm", "MUSA", "SYCL", "Vulkan", "OpenCL"};
  for (const std::string name : kNames) {
    if (ggml_backend_reg_by_name(name.c_str()) != nullptr) continue;
    const fs::path path = fs::path(MOESTRO_GGML_BACKENDS) / LowerCase("libggml-" + name + ".so");
    std::error_code ignored;
    if (fs::exists(path, ignored)) LoadPlugIn(path);
  }
  // ggml's variable for a plug-in that is not ggml's own.
  if (const char* other = std::getenv("GGML_BACKEND_PATH"); other != nullptr) {
    LoadPlugIn(other);
  }
}

Result<std::string> AddRemoteDevice(const std::string& address) {
  BeQuiet();
  const fs::path path = fs::path(MOESTRO_GGML_BACKENDS) / "libggml-rpc.so";
  std::error_code ignored;
  if (fs::exists(path, ignored)) LoadPlugIn(path);
  ggml_backend_reg_t client = ggml_backend_reg_by_name("RPC");
  using AddServer = ggml_backend_reg_t (*)(const char*);
  const auto add = client == nullptr
                       ? nullptr
                       : reinterpret_cast<AddServer>(ggml_backend_reg_get_proc_address(
                             client, "ggml_backend_rpc_add_server"));
  if (add == nullptr) {
    return Fail(Errc::kUnsupported,
                "ggml's plug-in for remote hosts is not installed (Debian: libggml0-backend-rpc)");
  }
  ggml_backend_reg_t server = add(address.c_str());
  if (server == nullptr || ggml_backend_reg_dev_count(server) == 0) {
    return Fail(Errc::kDevice, "the server at {} offers no device", address);
  }
  ggml_backend_register(server);
  return ggml_backend_dev_name(ggml_backend_reg_dev_get(server, 0));
}

}  // namespace moestro
