// SPDX-License-Identifier: MIT
#include "learned/kept_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/cache_folder.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "learned/json_fields.h"

namespace moestro {
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

}  // namespace moestro
