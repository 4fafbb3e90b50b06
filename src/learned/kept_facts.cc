// SPDX-License-Identifier: MIT
#include "learned/kept_facts.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "base/cache_files.h"
#include "base/hash.h"
#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"
#include "learned/fact_store.h"
#include "learned/machine_files.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

// Raised when costs are measured otherwise.
constexpr int kWayOfMeasuring = 5;
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
  [[maybe_unused]] const std::error_code made = MakePrivateFolder(folder);  // writing fails, too
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

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kUnsettledNs = 2 * kSecondNs;

FactKey FactOf(const WeightsKey& key) {
  Fnv1a hash;
  hash.Add(key.what);
  if (!key.files.empty()) {
    hash.AddNumber(key.files.front().stamp.device);
    hash.AddNumber(key.files.front().stamp.inode);
  }
  FactKey fact{.file = Format("weights-{:016x}", hash.value()),
               .text = Format("{} {:016x}", key.what, key.header)};
  for (const FileVersion& file : key.files) {
    fact.text += Format("\n{} {} {} {} {}", file.stamp.device, file.stamp.inode, file.stamp.size,
                        file.stamp.modified_ns, file.changed_ns);
  }
  return fact;
}

bool IsSettled(const WeightsKey& key) {
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  return std::ranges::all_of(key.files, [now](const FileVersion& file) {
    return file.stamp.modified_ns < now - kUnsettledNs;
  });
}

}  // namespace

Result<FileVersion> FileVersion::Of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return Fail(Errc::kIo, "cannot examine {}: {}", path, std::strerror(errno));
  }
  return FileVersion{
      .stamp = {.device = info.st_dev,
                .inode = info.st_ino,
                .size = static_cast<uint64_t>(info.st_size),
                .modified_ns = info.st_mtim.tv_sec * kSecondNs + info.st_mtim.tv_nsec},
      .changed_ns = info.st_ctim.tv_sec * kSecondNs + info.st_ctim.tv_nsec};
}

std::optional<uint64_t> KeptWeights(const std::string& folder, const WeightsKey& key) {
  const std::optional<std::string> number = KeptFact(folder, FactOf(key));
  if (!number) return std::nullopt;
  uint64_t id = 0;
  const char* const end = number->data() + number->size();
  const auto [last, error] = std::from_chars(number->data(), end, id, 16);
  if (error != std::errc() || last != end || id == 0) return std::nullopt;
  return id;
}

void KeepWeights(const std::string& folder, const WeightsKey& key, uint64_t id) {
  if (IsSettled(key)) KeepFact(folder, FactOf(key), Format("{:016x}", id));
}

namespace {

FactKey UsesOf(const ModelId& model) {
  return {.file = Format("uses-{:016x}", model.fingerprint),
          .text = Format("{} {}", model.shape.n_layer, model.shape.n_expert)};
}

size_t CountExperts(const ModelId& model) {
  return size_t{model.shape.n_layer} * model.shape.n_expert;
}

}  // namespace

std::vector<uint8_t> KeptUses(const std::string& folder, const ModelId& model) {
  const std::optional<std::string> uses = KeptFact(folder, UsesOf(model));
  if (!uses || uses->size() != CountExperts(model)) return {};
  return {uses->begin(), uses->end()};
}

void KeepUses(const std::string& folder, const ModelId& model, std::span<const uint8_t> uses) {
  if (uses.size() != CountExperts(model)) return;
  KeepFact(folder, UsesOf(model), std::string(uses.begin(), uses.end()));
}

namespace {

constexpr double kStepsOfADoubling = 16.0;
constexpr double kMostPacked = 255.0;

}  // namespace

uint8_t PackUses(uint32_t uses) {
  if (uses == 0) return 0;
  const double steps = 1.0 + std::round(kStepsOfADoubling * std::log2(uses));
  return static_cast<uint8_t>(std::min(steps, kMostPacked));
}

uint32_t UnpackUses(uint8_t packed) {
  if (packed == 0) return 0;
  return static_cast<uint32_t>(std::round(std::exp2((packed - 1) / kStepsOfADoubling)));
}

std::vector<SlotTable::Used> RecallOrder(const ExpertCatalog& catalog, uint32_t n_expert,
                                         std::span<const uint64_t> slots,
                                         std::span<const uint8_t> packed) {
  CHECK(packed.size() <= catalog.layers.size() * n_expert);
  std::vector<std::vector<SlotTable::Used>> of_pool(slots.size());
  for (size_t i = 0; i < packed.size(); ++i) {
    const ExpertKey key{.layer = {static_cast<uint16_t>(i / n_expert)},
                        .expert = {static_cast<uint16_t>(i % n_expert)}};
    if (packed[i] == 0 || catalog.layers[key.layer.value].experts.empty()) continue;
    const uint32_t uses = std::max(UnpackUses(packed[i]) / 2, 1U);
    of_pool[catalog.copy(key).pool].push_back({.key = key, .uses = uses});
  }
  std::vector<SlotTable::Used> order;
  for (size_t p = 0; p < of_pool.size(); ++p) {
    std::vector<SlotTable::Used>& pool = of_pool[p];
    // Sorts by the kept counts, because halves of small counts are equal.
    std::ranges::stable_sort(pool, std::greater{}, [&](const SlotTable::Used& one) {
      return packed[size_t{one.key.layer.value} * n_expert + one.key.expert.value];
    });
    pool.resize(std::min<size_t>(pool.size(), slots[p]));
    order.append_range(pool);
  }
  std::ranges::sort(order, {}, [&](const SlotTable::Used& one) {
    const Extent& first = catalog.copy(one.key).slices[0];
    return std::tuple(first.file, first.offset, one.key.layer.value, one.key.expert.value);
  });
  return order;
}

namespace {

FactKey PlanOf(uint64_t fingerprint, uint32_t threads) {
  return {.file = Format("plan-{:016x}-{}", fingerprint, threads),
          .text = "share, low, high of each point"};
}

FactKey CachingOf(uint64_t fingerprint) {
  return {.file = Format("caching-{:016x}", fingerprint), .text = "share, missing"};
}

std::string BytesOf(std::span<const double> numbers) {
  std::string bytes(numbers.size_bytes(), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<double> NumbersOf(std::string_view bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  return numbers;
}

// Between two speeds, by the share of the way.
double Between(double from, double to, double way) {
  return from > 0.0 && to > 0.0 ? from * std::pow(to / from, way) : from + (to - from) * way;
}

}  // namespace

std::optional<PlannedSpeed> SpeedAt(std::span<const PlannedSpeed> points, double share) {
  if (points.empty() || share < points.front().share) return std::nullopt;
  const auto after = std::ranges::upper_bound(points, share, {}, &PlannedSpeed::share);
  if (after == points.end()) return points.back();
  const PlannedSpeed& before = *std::prev(after);
  const double way = (share - before.share) / (after->share - before.share);
  return PlannedSpeed{.share = share,
                      .low = Between(before.low, after->low, way),
                      .high = Between(before.high, after->high, way)};
}

void KeepPlan(const std::string& folder, uint64_t fingerprint, uint32_t threads,
              std::span<const PlannedSpeed> points) {
  std::vector<double> numbers;
  for (const PlannedSpeed& p : points) numbers.append_range(std::array{p.share, p.low, p.high});
  KeepFact(folder, PlanOf(fingerprint, threads), BytesOf(numbers));
}

std::vector<PlannedSpeed> KeptPlan(const std::string& folder, uint64_t fingerprint,
                                   uint32_t threads) {
  const std::vector<double> numbers =
      NumbersOf(KeptFact(folder, PlanOf(fingerprint, threads)).value_or(""));
  std::vector<PlannedSpeed> points;
  for (size_t i = 0; i + 3 <= numbers.size(); i += 3) {
    points.push_back({.share = numbers[i], .low = numbers[i + 1], .high = numbers[i + 2]});
  }
  return points;
}

void KeepCaching(const std::string& folder, uint64_t fingerprint, const SeenCaching& seen) {
  KeepFact(folder, CachingOf(fingerprint), BytesOf(std::array{seen.share, seen.missing}));
}

std::optional<SeenCaching> KeptCaching(const std::string& folder, uint64_t fingerprint) {
  const std::vector<double> numbers =
      NumbersOf(KeptFact(folder, CachingOf(fingerprint)).value_or(""));
  if (numbers.size() != 2) return std::nullopt;
  return SeenCaching{.share = numbers[0], .missing = numbers[1]};
}

}  // namespace moestro
