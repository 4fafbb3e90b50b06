// SPDX-License-Identifier: MIT
// Reads the settings of this machine and of this user, and parses a command line with them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"

namespace moestro {

inline constexpr const char* kSystemSettings = "/etc/moestro/moestro.conf";

// The help's text about settings.
extern const char* const kSettingsHelp;

// $XDG_CONFIG_HOME/moestro/moestro.conf, else ~/.config/moestro/moestro.conf; empty: no folder is
// known.
std::string UserSettings();

// The text of a file; nullopt: the file does not exist, or a folder above it is closed to this
// user. kUsage: not a plain file, or larger than settings may be. kIo: the file cannot be read.
Result<std::optional<std::string>> ReadSettingsFile(const std::string& path);

// line.Parse() of the arguments. For 'serve' and 'health' flags that are not given come from the
// environment, then from the user's file, then from the system's. An error of a setting names its
// file and line, or its variable. Tests may pass other files.
Result<std::function<int()>> ParseConfigured(CommandLine& line, std::vector<std::string> arguments,
                                             const std::vector<std::string>& files = {
                                                 UserSettings(), kSystemSettings});

}  // namespace moestro
