// SPDX-License-Identifier: MIT
// Flags that are set elsewhere than on the command line: in files of "name = value" lines and in
// variables of the environment. This code decides which of them count, purely;
// commands/configuration.h reads files and variables.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/program.h"

namespace moestro {

struct FlagSetting {
  std::string name;         // of a flag, without dashes: "cache-ram"; or "model"
  std::string value;        // never empty
  std::string origin = {};  // "MOESTRO_CACHE_RAM", "/etc/moestro/moestro.conf:7"
  std::string model = {};   // of a section [models.NAME]; empty: of all models
};

inline constexpr size_t kLargestSettingsFile = 256 * 1024;
inline constexpr size_t kLongestSettingsLine = 4096;

// The settings of a file for the flags of `command`. Those behind a line [models.NAME] are of that
// model. kUsage, with `path` and the line: another section, no "name = value", a name that the
// command does not have (the nearest is named), a name that comes twice, no value, a line that is
// too long, bytes that are not text.
Result<std::vector<FlagSetting>> ParseSettings(std::string_view text, const std::string& path,
                                               const CommandText& command);

// Makes paths in a file's settings independent of the working folder: "~/" becomes `home`, and a
// relative path lies in the file's own `folder`. Names of the hub and of templates stay. kUsage,
// with the line: "~/" where `home` is empty.
Status ResolvePaths(const CommandText& command, const std::string& folder, const std::string& home,
                    std::vector<FlagSetting>& settings);

// Settings of the environment: MOESTRO_CACHE_RAM for --cache-ram. An empty variable sets nothing,
// nor does a variable for which IsServiceLink() is true.
std::vector<FlagSetting> SettingsOf(
    std::span<const std::pair<std::string, std::string>> environment, const CommandText& command);
// Whether the variable is one that Kubernetes and Docker's links give all containers for a service
// that is called moestro: MOESTRO_PORT=tcp://10.0.0.7:80.
bool IsServiceLink(std::string_view variable, std::string_view value);
// Variables that look like a mistyped one, each with the name that was probably meant.
std::vector<std::pair<std::string, std::string>> MistypedVariables(
    std::span<const std::pair<std::string, std::string>> environment, const CommandText& command);

struct ChosenSettings {
  std::vector<std::string> arguments;  // the given arguments, with the chosen settings in front
  std::vector<FlagSetting> used;
};
// `given` are the arguments after the command's name; `sources` are in order of precedence. A
// setting gives way to the same flag in an earlier source, and to a flag there that excludes it;
// one of a model becomes an argument of kModelFlag, to the same flag of the same model; settings
// that need a dropped one are dropped, too. Settings of flags that the command does not have are
// left out. kUsage: a switch that is neither on nor off.
Result<ChosenSettings> ChooseSettings(const CommandText& command,
                                      std::span<const std::string> given,
                                      std::span<const std::vector<FlagSetting>> sources);

// The flag that sets a flag of one model: --for coder:ctx=16384.
inline constexpr std::string_view kModelFlag = "for";
// A value of kModelFlag, taken apart. kUsage: no model, a flag that the command does not have (the
// nearest is named), or no value.
Result<FlagSetting> ParseModelFlag(const CommandText& command, std::string_view value);
// The arguments that have the setting's effect; none for a switch that is off by default. kUsage: a
// switch that is neither on nor off. REQUIRES: the command has the flag.
Result<std::vector<std::string>> ArgumentsOf(const CommandText& command,
                                             const FlagSetting& setting);
// Arguments of the command without positional ones and without flags of these names.
std::vector<std::string> ArgumentsWithout(const CommandText& command,
                                          std::span<const std::string> given,
                                          const std::set<std::string>& names);

// The origin of the setting whose flag `message` names; empty: no setting's.
std::string PlaceOfSetting(std::string_view message, std::span<const FlagSetting> used);

}  // namespace moestro
