// SPDX-License-Identifier: MIT
#include "learned/kept_facts.h"

#include <sys/stat.h>

#include <algorithm>
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
#include "base/json.h"
#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"
#include "learned/beside_model.h"
#include "learned/machine_files.h"

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

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kUnsettledNs = 2 * kSecondNs;
constexpr size_t kNumberDigits = 16;

// Text of all of the key, with its purpose at the end.
std::string KeyText(const WeightsKey& key) {
  std::string text = Format("moestro weights 1\n{} {:016x}\n", key.what, key.header);
  for (const FileVersion& file : key.files) {
    text += Format("{} {} {} {} {}\n", file.stamp.device, file.stamp.inode, file.stamp.size,
                   file.stamp.modified_ns, file.changed_ns);
  }
  return text;
}

std::string WithCheck(const std::string& text) {
  Fnv1a check;
  check.Add(text);
  return text + Format("{:016x}\n", check.value());
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

std::string KeptWeightsFile(const std::string& folder, const WeightsKey& key) {
  Fnv1a hash;
  hash.Add(key.what);
  if (!key.files.empty()) {
    hash.AddNumber(key.files.front().stamp.device);
    hash.AddNumber(key.files.front().stamp.inode);
  }
  return Format("{}/weights-{:016x}", folder, hash.value());
}

std::optional<uint64_t> KeptWeights(const std::string& folder, const WeightsKey& key) {
  if (folder.empty()) return std::nullopt;
  const std::string begin = KeyText(key);
  const size_t bytes = begin.size() + 2 * (kNumberDigits + 1);
  const std::string text = ReadOwnFile(KeptWeightsFile(folder, key), bytes);
  if (!text.starts_with(begin)) return std::nullopt;
  const std::string_view number = std::string_view(text).substr(begin.size(), kNumberDigits);
  if (text != WithCheck(Format("{}{}\n", begin, number))) return std::nullopt;
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), id, 16);
  if (error != std::errc() || end != number.end() || id == 0) return std::nullopt;
  return id;
}

void KeepWeights(const std::string& folder, const WeightsKey& key, uint64_t id) {
  if (folder.empty() || !IsSettled(key)) return;
  [[maybe_unused]] const std::error_code made = MakePrivateFolder(folder);  // writing will say so
  const std::string path = KeptWeightsFile(folder, key);
  if (WriteOwnFile(path, WithCheck(Format("{}{:016x}\n", KeyText(key), id)))) return;
  LogInfo("the weights' number is not kept: cannot write {}: {}", path, std::strerror(errno));
}

namespace {

constexpr size_t kCheckDigits = 16;

std::string BeginningOf(const ModelId& model) {
  return Format("moestro uses 1\n{:016x} {} {}\n", model.fingerprint, model.shape.n_layer,
                model.shape.n_expert);
}

std::string CheckOf(std::string_view content) {
  Fnv1a check;
  check.Add(content);
  return Format("{:016x}", check.value());
}

size_t CountExperts(const ModelId& model) {
  return size_t{model.shape.n_layer} * model.shape.n_expert;
}

}  // namespace

std::string KeptUsesFile(const std::string& folder, const ModelId& model) {
  return Format("{}/uses-{:016x}", folder, model.fingerprint);
}

std::vector<uint8_t> KeptUses(const std::string& folder, const ModelId& model) {
  if (folder.empty()) return {};
  const std::string path = KeptUsesFile(folder, model);
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return {};
  const std::string begin = BeginningOf(model);
  const size_t n = CountExperts(model);
  const std::string text = ReadOwnFile(path, begin.size() + n + kCheckDigits);
  const std::string_view checked = std::string_view(text).substr(0, text.size() - kCheckDigits);
  if (!text.starts_with(begin) || text.substr(checked.size()) != CheckOf(checked)) {
    LogWarning("{} is damaged, of another model or not this user's: the start is cold", path);
    return {};
  }
  const std::string_view uses = checked.substr(begin.size());
  return {uses.begin(), uses.end()};
}

void KeepUses(const std::string& folder, const ModelId& model, std::span<const uint8_t> uses) {
  if (folder.empty() || uses.size() != CountExperts(model)) return;
  [[maybe_unused]] const std::error_code made = MakePrivateFolder(folder);  // writing will say so
  std::string content = BeginningOf(model);
  for (const uint8_t n : uses) content += static_cast<char>(n);
  content += CheckOf(content);
  const std::string path = KeptUsesFile(folder, model);
  if (WriteOwnFile(path, content)) return;
  LogInfo("which experts decode used is not kept: cannot write {}: {}", path, std::strerror(errno));
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
  CHECK(packed.size() == catalog.layers.size() * n_expert);
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

constexpr JsonFileKind kPlanKind{
    .format = "moestro plan", .version = 1, .what = "a model's predicted speed"};
constexpr double kMostSpeed = 1e9;
constexpr size_t kMostPoints = 256;

std::string PlanPath(const std::string& folder, uint64_t fingerprint, uint32_t threads) {
  return Format("{}/plan-{:016x}-{}.json", folder, fingerprint, threads);
}

Status Parse(JsonView file, std::vector<PlannedSpeed>& points) {
  const std::optional<JsonView> all = file.Find("points");
  if (!all || all->kind() != JsonKind::kArray || all->size() > kMostPoints) {
    return Fail(Errc::kInvalidFile, "'points' is not a list of at most {}", kMostPoints);
  }
  for (size_t i = 0; i < all->size(); ++i) {
    const Fields fields(*all->At(i), Format("point {}", i + 1));
    PlannedSpeed point;
    TRY(point.share, fields.Number("share", points.empty() ? 0.0 : points.back().share, 1.0));
    TRY(point.low, fields.Number("low", 0.0, kMostSpeed));
    TRY(point.high, fields.Number("high", point.low, kMostSpeed));
    points.push_back(point);
  }
  return {};
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
  if (folder.empty()) return;
  [[maybe_unused]] const std::error_code made = MakePrivateFolder(folder);  // writing will say so
  Json list = Json::Array();
  for (const PlannedSpeed& point : points) {
    Json json = Json::Object();
    json.Set("share", point.share).Set("low", point.low).Set("high", point.high);
    list.Push(std::move(json));
  }
  Json file = BeginJsonFile(kPlanKind);
  file.Set("points", std::move(list));
  const Status written = WriteJsonFile(PlanPath(folder, fingerprint, threads), file);
  if (!written) LogInfo("the predicted speed is not kept: {}", written.error().message);
}

std::vector<PlannedSpeed> KeptPlan(const std::string& folder, uint64_t fingerprint,
                                   uint32_t threads) {
  if (folder.empty()) return {};
  const std::string path = PlanPath(folder, fingerprint, threads);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  std::vector<PlannedSpeed> points;
  const Status read = ReadJsonFile(
      path, kPlanKind, [&points](JsonView file) -> Status { return Parse(file, points); });
  if (read) return points;
  LogInfo("the predicted speed is not shown: {}", read.error().message);
  return {};
}

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
