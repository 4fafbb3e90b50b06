// SPDX-License-Identifier: MIT
#include "commands/configuration.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/input_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/program.h"
#include "commands/settings.h"

namespace moestro {

const char* const kSettingsHelp =
    "Every flag of 'moestro serve' may also be set by a variable (MOESTRO_CACHE_RAM=2G for\n"
    "--cache-ram) or by a line of $XDG_CONFIG_HOME/moestro/moestro.conf (or ~/.config), else of\n"
    "/etc/moestro/moestro.conf: cache-ram = 2G, log-requests = on, model = FILE. What comes first "
    "in\n"
    "this sentence counts. 'moestro health' takes --host and --port from there, no other command "
    "any.";

namespace {

// The command whose flags are settings, and the commands that take those of the settings that they
// have.
constexpr std::string_view kConfigured = "serve";
constexpr std::array<std::string_view, 2> kTaking = {"serve", "health"};

bool IsHiddenOrAbsent(const std::string& path, int why) {
  if (why == ENOENT || why == ENOTDIR) return true;
  struct stat info = {};
  return why == EACCES && stat(path.c_str(), &info) != 0;
}

std::vector<std::pair<std::string, std::string>> VariablesOfProcess() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view text = *at;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

// The user's home; empty: not set.
std::string HomeFolder() {
  const char* home = std::getenv("HOME");
  return home == nullptr || home[0] != '/' ? "" : home;
}

Result<std::vector<std::vector<FlagSetting>>> ReadSources(const CommandText& configured,
                                                          const std::vector<std::string>& files) {
  const auto environment = VariablesOfProcess();
  for (const auto& [variable, meant] : MistypedVariables(environment, configured)) {
    LogWarning("the variable {} sets nothing; did you mean {}?", variable, meant);
  }
  for (const auto& [variable, value] : environment) {
    if (!IsServiceLink(variable, value)) continue;
    LogWarning(
        "{}={} is a container's link to a service and sets nothing; --port, the settings' "
        "port, or a service of another name do",
        variable, Printable(value));
  }
  std::vector<std::vector<FlagSetting>> sources = {SettingsOf(environment, configured)};
  for (const std::string& path : files) {
    if (path.empty()) continue;
    TRY(const std::optional<std::string> text, ReadSettingsFile(path));
    if (!text) continue;
    TRY(std::vector<FlagSetting> settings, ParseSettings(*text, path, configured));
    const std::string folder = path.substr(0, path.rfind('/'));
    TRY_STATUS(ResolvePaths(configured, folder, HomeFolder(), settings));
    sources.push_back(std::move(settings));
  }
  return sources;
}

bool AsksForHelp(std::span<const std::string> arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& text) { return text == "--help" || text == "-h"; });
}

}  // namespace

std::string UserSettings() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && config[0] == '/') return Format("{}/moestro/moestro.conf", config);
  const std::string home = HomeFolder();
  return home.empty() ? "" : Format("{}/.config/moestro/moestro.conf", home);
}

Result<std::optional<std::string>> ReadSettingsFile(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int why = errno;
    if (IsHiddenOrAbsent(path, why)) return std::optional<std::string>();
    return Fail(Errc::kIo, "cannot read the settings in {}: {}", path, std::strerror(why));
  }
  struct stat info = {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Fail(Errc::kUsage, "{} should be a file of settings and is no plain file", path);
  }
  // One byte more than the limit, so that a larger file is recognised.
  std::string text(kLargestSettingsFile + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = read(file.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return Fail(Errc::kIo, "cannot read the settings in {}: {}", path, std::strerror(errno));
    }
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size > kLargestSettingsFile) {
    return Fail(Errc::kUsage, "{} has more than the {} KiB that settings may take", path,
                kLargestSettingsFile / 1024);
  }
  text.resize(size);
  return std::optional(std::move(text));
}

Result<std::function<int()>> ParseConfigured(CommandLine& line, std::vector<std::string> arguments,
                                             const std::vector<std::string>& files) {
  const bool takes = !arguments.empty() && std::ranges::contains(kTaking, arguments.front());
  if (!takes || AsksForHelp(arguments)) return line.Parse(std::move(arguments));
  const ProgramText program = line.Describe();
  const CommandText* command = FindCommand(program, arguments.front());
  const CommandText* configured = FindCommand(program, kConfigured);
  if (command == nullptr || configured == nullptr) return line.Parse(std::move(arguments));
  TRY(const std::vector<std::vector<FlagSetting>> sources, ReadSources(*configured, files));
  TRY(ChosenSettings chosen, ChooseSettings(*command, std::span(arguments).subspan(1), sources));
  std::vector<std::string> all = {arguments.front()};
  all.insert(all.end(), chosen.arguments.begin(), chosen.arguments.end());
  Result<std::function<int()>> action = line.Parse(std::move(all), files);
  if (action) return action;
  const std::string origin = PlaceOfSetting(action.error().message, chosen.used);
  if (origin.empty()) return action;
  return Fail(action.error().code, "{}: {}", origin, action.error().message);
}

}  // namespace moestro
