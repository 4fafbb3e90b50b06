// SPDX-License-Identifier: MIT
#include "compute/devices.h"

#include <ggml-backend.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "base/number.h"
#include "base/pages.h"
#include "base/result.h"
#include "base/text.h"
#include "compute/backend_calls.h"
#include "compute/backends.h"

namespace moestro {
namespace {

// The name of ggml's CPU backend when used as a device beside the CPU: for tests where no device is
// installed, or where a device starts too slowly.
constexpr std::string_view kCpuAsDevice = "ggml-cpu";

// ggml calls a software Vulkan device a GPU like any other; only the description shows the kind.
bool is_software(const std::string& description) {
  const std::string lower = LowerCase(description);
  return lower.contains("llvmpipe") || lower.contains("swiftshader") ||
         lower.contains("software rasterizer");
}

DeviceKind KindOf(enum ggml_backend_dev_type type, const DeviceInfo& info) {
  if (type == GGML_BACKEND_DEVICE_TYPE_CPU) return DeviceKind::kCpu;
  if (LowerCase(info.backend) == "rpc") return DeviceKind::kRemote;
  if (is_software(info.description)) return DeviceKind::kSoftware;
  return type == GGML_BACKEND_DEVICE_TYPE_IGPU ? DeviceKind::kIntegrated : DeviceKind::kDiscrete;
}

// Devices that compute whole graphs: no BLAS, no bundles of other devices.
bool is_for_us(enum ggml_backend_dev_type type) {
  return type == GGML_BACKEND_DEVICE_TYPE_CPU || type == GGML_BACKEND_DEVICE_TYPE_GPU ||
         type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

// Devices of the best kind that is found, by the backend of the device with most memory: another
// backend may list the devices a second time.
std::vector<size_t> ChooseByKind(std::span<const DeviceInfo> devices, bool takes_software) {
  std::vector<size_t> chosen;
  for (const DeviceKind kind :
       {DeviceKind::kDiscrete, DeviceKind::kIntegrated, DeviceKind::kSoftware}) {
    if (kind == DeviceKind::kSoftware && !takes_software) continue;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].kind == kind) chosen.push_back(i);
    }
    if (!chosen.empty()) break;
  }
  std::ranges::stable_sort(chosen, std::greater(),
                           [&](size_t i) { return devices[i].memory_total; });
  std::erase_if(chosen, [&, first = chosen.empty() ? 0 : chosen.front()](size_t i) {
    return devices[i].backend != devices[first].backend;
  });
  return chosen;
}

Result<size_t> FindByName(std::span<const DeviceInfo> devices, std::string_view name) {
  const std::string wanted = LowerCase(name);
  const auto first = [&](auto&& is_it) {
    const auto found = std::ranges::find_if(
        devices, [&](const DeviceInfo& d) { return d.kind != DeviceKind::kCpu && is_it(d); });
    return static_cast<size_t>(found - devices.begin());
  };
  if (wanted == kCpuAsDevice) {
    const auto cpu = std::ranges::find(devices, DeviceKind::kCpu, &DeviceInfo::kind);
    if (cpu != devices.end()) return static_cast<size_t>(cpu - devices.begin());
  }
  size_t i = first([&](const DeviceInfo& d) { return LowerCase(d.name) == wanted; });
  if (i == devices.size())
    i = first([&](const DeviceInfo& d) { return LowerCase(d.backend) == wanted; });
  if (i < devices.size()) return i;
  if (wanted == "auto" || wanted == "cpu") {
    return Fail(Errc::kUsage, "'{}' stands alone: it names no device", name);
  }
  std::string known = "auto, cpu";
  for (const DeviceInfo& d : devices) {
    if (d.kind != DeviceKind::kCpu) known += Format(", {}", d.name);
  }
  return Fail(Errc::kUsage, "there is no device '{}'; known: {}", name, known);
}

}  // namespace

std::vector<DeviceInfo> FindDevices() {
  LoadDeviceBackends();
  std::vector<DeviceInfo> found;
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    const enum ggml_backend_dev_type type = ggml_backend_dev_type(device);
    if (!is_for_us(type)) continue;
    DeviceInfo info{.name = ggml_backend_dev_name(device),
                    .description = ggml_backend_dev_description(device),
                    .backend = ggml_backend_reg_name(ggml_backend_dev_backend_reg(device))};
    const DeviceMemory memory = MemoryOf(device).value_or(DeviceMemory());
    info.memory_total = memory.total;
    info.memory_free = memory.available;
    info.kind = KindOf(type, info);
    found.push_back(std::move(info));
  }
  return found;
}

std::string_view NameOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kDiscrete:
      return "discrete";
    case DeviceKind::kIntegrated:
      return "integrated";
    case DeviceKind::kSoftware:
      return "software";
    case DeviceKind::kRemote:
      return "remote";
  }
  return "";
}

bool MayHaveGpu(const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const char* node : {"/dev/nvidia0", "/dev/kfd", "/dev/dxg"}) {
    if (fs::exists(root + node, ignored)) return true;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(root + "/dev/dri", ignored)) {
    if (entry.path().filename().string().starts_with("renderD")) return true;
  }
  return false;
}

Result<std::vector<size_t>> ChooseDevices(std::span<const DeviceInfo> devices,
                                          std::string_view names, bool auto_takes_software) {
  if (LowerCase(names) == "cpu") return std::vector<size_t>();
  if (LowerCase(names) == "auto") return ChooseByKind(devices, auto_takes_software);
  std::vector<size_t> chosen;
  for (size_t at = 0; at <= names.size();) {
    const size_t comma = std::min(names.find(',', at), names.size());
    TRY(const size_t i, FindByName(devices, names.substr(at, comma - at)));
    at = comma + 1;
    if (std::ranges::contains(chosen, i)) {
      return Fail(Errc::kUsage, "'{}' names the device {} twice", names, devices[i].name);
    }
    chosen.push_back(i);
  }
  return chosen;
}

Result<ComputeDevice> ComputeDevice::Open(const DeviceInfo& info) {
  ComputeDevice device;
  device.info_ = info;
  Result<BackendPtr> started = StartBackend(info.name);
  if (!started) {
    return Fail(Errc::kDevice, "the device {} ({}) does not start: {}", info.name, info.description,
                started.error().message);
  }
  device.backend_ = *std::move(started);
  return device;
}

Status ComputeDevice::Finish() const {
  return WaitFor(backend_.get()).transform_error([this](const Error& why) {
    return Error{.code = Errc::kDevice, .message = Format("{}: {}", info_.name, why.message)};
  });
}

Result<uint64_t> ComputeDevice::FreeMemory() const {
  TRY(const DeviceMemory memory, MemoryOf(handle()));
  return memory.available;
}

uint64_t MostPinned(const ComputeDevice& device) {
  ggml_backend_buffer_type_t type = PinnedTypeOf(device.handle());
  if (type == nullptr) return 0;
  const uint64_t most = ggml_backend_buft_get_max_size(type);
  return most > kMostPageBytes ? most - kMostPageBytes : 0;
}

Result<HostMemory> AllocatePinned(const ComputeDevice& device, uint64_t bytes) {
  ggml_backend_buffer_type_t type = PinnedTypeOf(device.handle());
  if (type == nullptr || bytes > MostPinned(device)) {
    return Fail(Errc::kNoMemory, "the device {} offers no {} of pinned memory", device.info().name,
                FormatBytes(bytes));
  }
  // A large page more, since a driver may align to less.
  Result<BufferPtr> given = AllocateBuffer(type, bytes + kMostPageBytes);
  const std::shared_ptr<ggml_backend_buffer> buffer = given ? *std::move(given) : nullptr;
  // Backends that fail give plain memory instead, with another buffer type.
  if (buffer == nullptr || ggml_backend_buffer_get_type(buffer.get()) != type) {
    return Fail(Errc::kNoMemory, "the device {} has no {} of pinned memory left",
                device.info().name, FormatBytes(bytes));
  }
  auto* base = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer.get()));
  const auto address = reinterpret_cast<uintptr_t>(base);
  std::byte* aligned = base + (AlignUp(address, kMostPageBytes) - address);
  AdviseHugePages(aligned, bytes);
  return HostMemory::Of(buffer, {aligned, bytes});
}

bool is_cached(const HostMemory& memory) {
  CHECK(memory.size() >= kMiB);
  const std::span words(reinterpret_cast<const volatile uint64_t*>(memory.data()), kMiB / 8);
  // Reads one word per cache line: microseconds with caches, 16384 trips to memory without.
  constexpr size_t kStep = 8;
  constexpr double kLong = 1e-3;
  double best = 1.0;
  for (int time = 0; time < 4; ++time) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < words.size(); i += kStep) {
      [[maybe_unused]] const uint64_t word = words[i];
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best < kLong;
}

}  // namespace moestro
