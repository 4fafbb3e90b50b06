// SPDX-License-Identifier: MIT
#include "learned/cost_cache.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/cache_folder.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "learned/latency_file.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

// Raised when costs are measured otherwise.
constexpr int kWayOfMeasuring = 2;
constexpr const char* kMadeFor = "measured for";

// The beginning of the names of a device's files.
std::string PrefixOf(const DeviceInfo& device) {
  std::string name = device.name;
  std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return "costs-" + name + "-";
}

}  // namespace

std::string CostKey::text() const {
  return Format(
      "way {} of measuring; CPU {}, {}; device {} ({}, {}), {} bytes; copies from memory "
      "pinned by {}; expert {}/{}/{}, {} to {}",
      kWayOfMeasuring, cpu, kernel, device.name, device.backend, device.description,
      device.memory_total, pinned_by.empty() ? "nobody" : pinned_by, expert.types[0],
      expert.types[1], expert.types[2], expert.n_embd, expert.n_ff);
}

std::string CostFile(const std::string& folder, const CostKey& key) {
  Fnv1a hash;
  hash.Add(key.text());
  return Format("{}/{}{:016x}.json", folder, PrefixOf(key.device), hash.value());
}

std::optional<LatencyModel> KeptCosts(const std::string& folder, const CostKey& key) {
  if (folder.empty()) return std::nullopt;
  const std::string path = CostFile(folder, key);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const Result<LatencyFile> file = ReadLatency(path);
  if (!file) {
    LogInfo("costs are measured again: {}", file.error().message);
    return std::nullopt;
  }
  const std::pair<std::string, std::string> made_for(kMadeFor, key.text());
  const bool is_its = file->devices.size() == 1 && file->devices.front() == key.device.name;
  if (!is_its || !std::ranges::contains(file->sources, made_for)) {
    LogInfo("costs are measured again: {} was measured for something else", path);
    return std::nullopt;
  }
  return file->model;
}

void KeepCosts(const std::string& folder, const CostKey& key, const LatencyModel& model) {
  if (folder.empty()) return;
  MakePrivateFolder(folder);  // a failure makes the writing below fail, too
  LatencyFile file{.machine = key.cpu,
                   .devices = {key.device.name},
                   .model = model,
                   .sources = {{"all", "measured"}, {kMadeFor, key.text()}}};
  file.model.disk = {};
  const Status written = WriteLatency(CostFile(folder, key), file);
  if (!written) LogInfo("measured costs are not kept: {}", written.error().message);
}

void ForgetCosts(const std::string& folder, const DeviceInfo& device) {
  if (folder.empty()) return;
  std::error_code ignored;
  std::vector<fs::path> kept;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(PrefixOf(device))) {
      kept.push_back(entry.path());
    }
  }
  for (const fs::path& path : kept) fs::remove(path, ignored);
}

}  // namespace moestro
