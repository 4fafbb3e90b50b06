// SPDX-License-Identifier: MIT
#include "house/model_list.h"

#include <algorithm>
#include <cctype>

#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr size_t kDigits = 5;

bool AreDigits(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The number in "-00002-of-00003" at the end of `stem`; empty: there is none.
std::string_view PartOf(std::string_view stem) {
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kLength = 1 + kDigits + kOf.size() + kDigits;
  if (stem.size() <= kLength) return {};
  const std::string_view end = stem.substr(stem.size() - kLength);
  const std::string_view part = end.substr(1, kDigits);
  const bool is_part = end[0] == '-' && AreDigits(part) &&
                       end.substr(1 + kDigits, kOf.size()) == kOf &&
                       AreDigits(end.substr(kLength - kDigits));
  return is_part ? part : std::string_view();
}

}  // namespace

std::string ModelNameOfFile(const std::string& path) {
  std::string_view name = path;
  name.remove_prefix(name.rfind('/') + 1);
  if (IsNamedWith(name, kSuffix)) name.remove_suffix(kSuffix.size());
  const std::string_view part = PartOf(name);
  if (!part.empty()) name.remove_suffix(name.end() - part.begin() + 1);
  return std::string(name);
}

bool IsModelFile(std::string_view file_name) {
  if (file_name.starts_with('.') || !IsNamedWith(file_name, kSuffix)) return false;
  if (LowerCase(file_name).starts_with("mmproj")) return false;
  const std::string_view part = PartOf(file_name.substr(0, file_name.size() - kSuffix.size()));
  return part.empty() || part == "00001";
}

Status CheckHouseModels(std::span<const HouseModel> models) {
  if (models.empty()) return Fail(Errc::kUsage, "there is no model to serve");
  for (const HouseModel& model : models) {
    const bool is_plain =
        !model.name.empty() && model.name.size() <= kLongestName &&
        FindInvalidUtf8(model.name) == model.name.size() &&
        std::ranges::none_of(model.name, [](unsigned char c) { return c < ' ' || c == 0x7f; });
    if (!is_plain) {
      return Fail(Errc::kUsage,
                  "'{}' is no name for a model: 1 to {} bytes of printable text; name {} in a "
                  "section [models.NAME] with model = FILE",
                  Printable(model.name, 80), kLongestName, Printable(model.path, 400));
    }
    const auto same = std::ranges::find(models, model.name, &HouseModel::name);
    if (&*same != &model) {
      return Fail(Errc::kUsage,
                  "two models are called {}: {} and {}; name one of them in a section "
                  "[models.NAME] with model = FILE, or leave it out",
                  Printable(model.name, 200), Printable(same->path, 400),
                  Printable(model.path, 400));
    }
  }
  return {};
}

std::optional<size_t> FindHouseModel(std::span<const HouseModel> models, std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  const auto find = [&](std::string_view wanted) -> std::optional<size_t> {
    const auto found = std::ranges::find(models, wanted, &HouseModel::name);
    if (found == models.end()) return std::nullopt;
    return static_cast<size_t>(found - models.begin());
  };
  const std::optional<size_t> exact = find(name);
  if (exact || !name.ends_with(kLatest)) return exact;
  return find(name.substr(0, name.size() - kLatest.size()));
}

std::string NamesText(std::span<const HouseModel> models) {
  constexpr size_t kMostNames = 8;
  std::vector<std::string> names;
  for (const HouseModel& model : models.first(std::min(models.size(), kMostNames))) {
    names.push_back(model.name);
  }
  return Format("; there are {}{}", Joined(names), names.size() < models.size() ? ", ..." : "");
}

std::string UnknownModel(std::span<const HouseModel> models, std::string_view name) {
  std::vector<std::string> names;
  for (const HouseModel& model : models) names.push_back(model.name);
  const std::string nearest = NearestText(name, names);
  return Format("there is no model '{}'{}", Printable(name, 80),
                nearest.empty() ? NamesText(models) : nearest);
}

}  // namespace moestro
