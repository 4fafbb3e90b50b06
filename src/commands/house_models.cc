// SPDX-License-Identifier: MIT
#include "commands/house_models.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "house/asked_model.h"

namespace moestro {
namespace {

// Flags of the house itself, which no model's process gets.
constexpr std::array<std::string_view, 14> kOfTheHouse = {
    "models", "for",          "keep-alive", "host", "port",    "alias",      "api-key-file",
    "cors",   "allowed-host", "ram",        "yes",  "offline", "show-needs", "model"};
// Flags that the house and all models' processes have alike.
constexpr std::array<std::string_view, 3> kOfAll = {"response-store", "response-store-size",
                                                    "response-store-days"};
// Flags of kOfTheHouse that a section may have; the house reads them.
constexpr std::array<std::string_view, 3> kOfSections = {"keep-alive", "ram", "model"};

using Sections = std::map<std::string, std::vector<FlagSetting>, std::less<>>;

std::optional<std::string> Find(const std::vector<FlagSetting>& section, std::string_view name) {
  // A later one counts: the command line's come behind the settings'.
  for (auto at = section.rbegin(); at != section.rend(); ++at) {
    if (at->name == name) return at->value;
  }
  return std::nullopt;
}

Result<std::vector<HouseModel>> ReadFolder(const std::string& folder) {
  std::vector<HouseModel> models;
  std::error_code why;
  for (std::filesystem::directory_iterator at(folder, why), end; !why && at != end;
       at.increment(why)) {
    const std::string file = at->path().filename().string();
    std::error_code unknown;
    if (!IsModelFile(file) || !at->is_regular_file(unknown)) continue;
    models.push_back({.name = ModelNameOfFile(file), .path = at->path().string()});
  }
  if (why) {
    return Fail(Errc::kIo, "--models {}: cannot read the folder: {}", Printable(folder, 400),
                why.message());
  }
  std::ranges::sort(models, {}, &HouseModel::path);
  return models;
}

Result<HouseModel> ReadOne(const std::string& text, const FindModelFile& find) {
  std::error_code unknown;
  if (std::filesystem::exists(text, unknown)) {
    if (std::filesystem::is_directory(text, unknown)) {
      return Fail(Errc::kUsage, "--models: {} is a folder; give it alone, or files",
                  Printable(text, 400));
    }
    return HouseModel{.name = ModelNameOfFile(text), .path = text};
  }
  TRY(const std::string path, find(text));
  if (!std::filesystem::exists(path, unknown)) {
    return Fail(Errc::kIo, "--models: there is no file {}", Printable(path, 400));
  }
  return HouseModel{.name = text, .path = path};
}

Result<std::vector<HouseModel>> ReadList(const std::string& list, const FindModelFile& find) {
  std::error_code unknown;
  if (list.empty()) return std::vector<HouseModel>();
  if (std::filesystem::is_directory(list, unknown)) return ReadFolder(list);
  std::vector<HouseModel> models;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string text(WithoutBlanks(std::string_view(list).substr(at, end - at)));
    at = end + 1;
    if (text.empty()) continue;
    TRY(HouseModel model, ReadOne(text, find));
    models.push_back(std::move(model));
  }
  return models;
}

Status CheckSection(const std::string& name, const std::vector<FlagSetting>& section) {
  for (const FlagSetting& setting : section) {
    const bool is_of_house = std::ranges::contains(kOfAll, setting.name) ||
                             (std::ranges::contains(kOfTheHouse, setting.name) &&
                              !std::ranges::contains(kOfSections, setting.name));
    if (is_of_house) {
      return Fail(Errc::kUsage, "--{} {}:{} cannot be set for one model: it is the whole server's",
                  kModelFlag, Printable(name), setting.name);
    }
  }
  return {};
}

Status TakeSections(const Sections& sections, const FindModelFile& find,
                    std::vector<HouseModel>& models) {
  for (const auto& [name, section] : sections) {
    TRY_STATUS(CheckSection(name, section));
    auto model = std::ranges::find(models, name, &HouseModel::name);
    const std::optional<std::string> file = Find(section, "model");
    if (!file && model == models.end()) {
      std::vector<std::string> names;
      for (const HouseModel& known : models) names.push_back(known.name);
      return Fail(Errc::kUsage,
                  "--{} {}: there is no such model{}; a section [models.{}] with model = FILE adds "
                  "one",
                  kModelFlag, Printable(name), NearestText(name, names), Printable(name));
    }
    if (!file) continue;
    TRY(HouseModel read, ReadOne(*file, find));
    read.name = name;
    // A file that got a name is not listed by its own as well; two sections may share a file.
    std::erase_if(models, [&](const HouseModel& other) {
      return (other.path == read.path && !sections.contains(other.name)) || other.name == name;
    });
    models.push_back(std::move(read));
  }
  return {};
}

// The arguments of the model's process.
Status AddArguments(const HouseWish& wish, const CommandText& command,
                    const std::vector<FlagSetting>& section, HouseModel& model) {
  std::set<std::string> left_out(kOfTheHouse.begin(), kOfTheHouse.end());
  std::map<std::string, FlagSetting> own;
  for (const FlagSetting& setting : section) own[setting.name] = setting;
  for (const auto& [name, setting] : own) {
    if (std::ranges::contains(kOfSections, name)) continue;
    TRY(const std::vector<std::string> arguments, ArgumentsOf(command, setting));
    model.arguments.insert(model.arguments.end(), arguments.begin(), arguments.end());
    left_out.insert(name);
  }
  for (std::string& argument : ArgumentsWithout(command, wish.given, left_out)) {
    model.arguments.push_back(std::move(argument));
  }
  model.arguments.push_back("--alias=" + model.name);
  model.arguments.push_back(model.path.starts_with('-') ? "./" + model.path : model.path);
  model.keep_alive = wish.keep_alive;
  if (const auto text = Find(section, "keep-alive")) {
    TRY(model.keep_alive, ParseKeepAlive(*text));
  }
  if (const auto text = Find(section, "ram")) {
    TRY(model.most, ParseBytes(*text));
  }
  return {};
}

}  // namespace

Result<std::vector<HouseModel>> ReadHouseModels(const HouseWish& wish, const CommandText& command,
                                                const FindModelFile& find) {
  TRY(std::vector<HouseModel> models, ReadList(wish.models, find));
  Sections sections;
  for (const FlagSetting& setting : wish.flags) sections[setting.model].push_back(setting);
  TRY_STATUS(TakeSections(sections, find, models));
  if (models.empty() && !wish.models.empty()) {
    return Fail(Errc::kUsage, "--models {}: there is no GGUF file in it",
                Printable(wish.models, 400));
  }
  TRY_STATUS(CheckHouseModels(models));
  for (HouseModel& model : models) {
    const auto section = sections.find(model.name);
    const Status added = AddArguments(
        wish, command, section == sections.end() ? std::vector<FlagSetting>() : section->second,
        model);
    if (!added) return std::unexpected(added.error());
  }
  return models;
}

}  // namespace moestro
