// SPDX-License-Identifier: MIT
#include "commands/settings.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "base/terminal.h"
#include "base/text.h"
#include "hub/model_name.h"

namespace moestro {
namespace {

constexpr std::string_view kPrefix = "MOESTRO_";

bool IsHelp(const FlagText& flag) { return flag.has_name("--help"); }

// All names under which a flag can be set, without dashes.
std::vector<std::string> SettableNames(const FlagText& flag) {
  if (IsHelp(flag)) return {};
  if (!flag.positional.empty()) return {flag.name()};
  std::vector<std::string> names;
  for (const auto* list : {&flag.names, &flag.off_names}) {
    for (const std::string& name : *list) {
      if (name.starts_with("--")) names.push_back(name.substr(2));
    }
  }
  return names;
}

std::vector<std::string> SettableNames(const CommandText& command) {
  std::vector<std::string> names;
  for (const FlagText& flag : command.flags) {
    for (std::string& name : SettableNames(flag)) names.push_back(std::move(name));
  }
  return names;
}

const FlagText* FindFlag(const CommandText& command, std::string_view name) {
  const auto found = std::ranges::find_if(command.flags, [&](const FlagText& flag) {
    return std::ranges::contains(SettableNames(flag), name);
  });
  return found == command.flags.end() ? nullptr : &*found;
}

std::string VariableOf(std::string_view name) {
  std::string variable(kPrefix);
  for (const char c : name) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

Status UnknownName(std::string_view name, const std::string& origin, const CommandText& command) {
  const std::vector<std::string> names = SettableNames(command);
  const auto nearest = NearestName(name, names);
  return Fail(Errc::kUsage, "{}: there is no setting '{}'; {}", origin, Printable(name),
              nearest
                  ? Format("did you mean '{}'?", *nearest)
                  : Format("'moestro {} --help' lists them, without their dashes", command.name));
}

// Parses one line without its end; nullopt: blank or a comment.
Result<std::optional<FlagSetting>> ParseLine(std::string_view line, const std::string& origin,
                                             const CommandText& command) {
  if (line.size() > kLongestSettingsLine) {
    return Fail(Errc::kUsage, "{}: the line has more than {} bytes", origin, kLongestSettingsLine);
  }
  if (FindInvalidUtf8(line) < line.size() || line.contains('\0')) {
    return Fail(Errc::kUsage, "{}: the line is no UTF-8 text", origin);
  }
  line = WithoutBlanks(line);
  if (line.empty() || line.starts_with('#')) return std::optional<FlagSetting>();
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) {
    return Fail(Errc::kUsage, "{}: '{}' is no setting; write name = value", origin,
                Printable(line));
  }
  const std::string name(WithoutBlanks(line.substr(0, equals)));
  const std::string value(WithoutBlanks(line.substr(equals + 1)));
  if (FindFlag(command, name) == nullptr) TRY_STATUS(UnknownName(name, origin, command));
  if (value.empty()) {
    return Fail(Errc::kUsage, "{}: {} has no value; write one or leave the line out", origin, name);
  }
  return std::optional(FlagSetting{.name = name, .value = value, .origin = origin});
}

// The model of a line "[models.NAME]".
Result<std::string> ParseSection(std::string_view line, const std::string& origin) {
  constexpr std::string_view kBegin = "[models.";
  const bool is_text = line.size() <= kLongestSettingsLine &&
                       FindInvalidUtf8(line) == line.size() && !line.contains('\0');
  const bool is_model = is_text && line.starts_with(kBegin) && line.ends_with(']') &&
                        line.size() > kBegin.size() + 1 && !line.contains('=');
  if (is_model) return std::string(line.substr(kBegin.size(), line.size() - kBegin.size() - 1));
  return Fail(Errc::kUsage, "{}: '{}' is no section; [models.NAME] has the flags of one model",
              origin, Printable(line));
}

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::contains(words, text);
}

// Arguments that belong together: a flag with its value, switches of one letter that are joined, or
// a positional argument.
struct GivenPart {
  size_t begin = 0;  // of the arguments
  size_t end = 0;
  std::vector<std::string> names = {};  // of the flags
  bool is_positional = false;
};

// Takes the arguments of a command apart. What is no flag of the command has no names.
std::vector<GivenPart> TakeApart(const CommandText& command, std::span<const std::string> given) {
  const auto find = [&](std::string_view name) {
    const auto found = std::ranges::find_if(
        command.flags, [&](const FlagText& flag) { return flag.has_name(name); });
    return found == command.flags.end() ? nullptr : &*found;
  };
  std::vector<GivenPart> parts;
  bool are_positional = false;  // all that follow
  for (size_t i = 0; i < given.size(); i = parts.back().end) {
    const std::string& text = given[i];
    GivenPart part{.begin = i, .end = i + 1};
    if (are_positional || text.size() < 2 || text[0] != '-') {
      part.is_positional = true;
    } else if (text == "--") {
      are_positional = true;
    } else if (text[1] == '-') {
      const size_t equals = text.find('=');
      const FlagText* flag = find(std::string_view(text).substr(0, equals));
      if (flag != nullptr) {
        part.names.push_back(flag->name());
        if (!flag->is_switch() && equals == std::string::npos) ++part.end;
      }
    } else {
      // Switches of one letter may be joined, and the last may have a value.
      for (size_t at = 1; at < text.size(); ++at) {
        const FlagText* flag = find(std::string("-") + text[at]);
        if (flag == nullptr) break;
        part.names.push_back(flag->name());
        if (flag->is_switch()) continue;
        if (at + 1 == text.size()) ++part.end;
        break;
      }
    }
    part.end = std::min(part.end, given.size());
    parts.push_back(std::move(part));
  }
  return parts;
}

// Names of the flags that the arguments of a command give.
std::set<std::string> NamesGiven(const CommandText& command, std::span<const std::string> given) {
  std::set<std::string> names;
  for (const GivenPart& part : TakeApart(command, given)) {
    names.insert(part.names.begin(), part.names.end());
    if (!part.is_positional) continue;
    for (const FlagText& flag : command.flags) {
      if (!flag.positional.empty()) names.insert(flag.name());
    }
  }
  return names;
}

// The arguments that have the setting's effect; none for a switch that is off by default.
Result<std::vector<std::string>> ArgumentsFor(const FlagText& flag, const FlagSetting& setting) {
  if (!flag.positional.empty()) {
    return std::vector{setting.value.starts_with('-') ? "./" + setting.value : setting.value};
  }
  if (!flag.is_switch()) return std::vector{Format("--{}={}", setting.name, setting.value)};
  const bool is_on = IsOneOf(setting.value, {"on", "true", "yes", "1"});
  if (!is_on && !IsOneOf(setting.value, {"off", "false", "no", "0"})) {
    return Fail(Errc::kUsage, "{}: {} is '{}'; write on or off", setting.origin, setting.name,
                Printable(setting.value));
  }
  const std::string name = "--" + setting.name;
  if (is_on) return std::vector{name};
  const bool names_off = std::ranges::contains(flag.off_names, name);
  if (names_off) return std::vector{flag.names.front()};
  if (!flag.off_names.empty()) return std::vector{flag.off_names.front()};
  return std::vector<std::string>();
}

// The argument that sets a flag of one model.
Result<std::vector<std::string>> ModelArguments(const FlagSetting& setting) {
  return std::vector{
      Format("--{}={}:{}={}", kModelFlag, setting.model, setting.name, setting.value)};
}

struct Candidate {
  const FlagText* flag;
  FlagSetting setting;
  std::vector<std::string> arguments;
};

// A value that could also be a name is a path if it has a folder.
bool IsPath(const FlagText& flag, const std::string& value) {
  if (value.starts_with("~/")) return TakesFile(flag) || TakesFolder(flag);
  if (!flag.positional.empty()) {
    const auto name = ParseModelName(value, "", [](const std::string&) { return false; });
    return name && name->kind == ModelNameKind::kPath;
  }
  if (flag.value == "FILE" || flag.value == "DIR") return true;
  return (TakesFile(flag) || TakesFolder(flag)) && value.contains('/');
}

bool ExcludesAny(const FlagText& flag, const std::set<std::string>& names) {
  return std::ranges::any_of(flag.excludes,
                             [&](const std::string& name) { return names.contains(name); });
}

// Drops the settings whose flags need a dropped one.
void DropNeedy(std::vector<Candidate>& chosen, std::set<std::string>& dropped) {
  const auto is_needy = [&](const Candidate& candidate) {
    return !candidate.arguments.empty() &&
           std::ranges::any_of(candidate.flag->needs,
                               [&](const std::string& name) { return dropped.contains(name); });
  };
  for (auto found = std::ranges::find_if(chosen, is_needy); found != chosen.end();
       found = std::ranges::find_if(chosen, is_needy)) {
    dropped.insert(found->flag->name());
    chosen.erase(found);
  }
}

}  // namespace

Result<std::vector<FlagSetting>> ParseSettings(std::string_view text, const std::string& path,
                                               const CommandText& command) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<FlagSetting> settings;
  std::string model;  // of the section
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string origin = Format("{}:{}", path, number);
    if (WithoutBlanks(line).starts_with('[')) {
      TRY(model, ParseSection(WithoutBlanks(line), origin));
      continue;
    }
    TRY(std::optional<FlagSetting> setting, ParseLine(line, origin, command));
    if (!setting) continue;
    setting->model = model;
    const FlagText* flag = FindFlag(command, setting->name);
    const auto same = std::ranges::find_if(settings, [&](const FlagSetting& s) {
      return s.model == model && FindFlag(command, s.name) == flag;
    });
    if (same != settings.end()) {
      return Fail(Errc::kUsage, "{}: {} is set twice, first in line {}", setting->origin,
                  flag->name(), same->origin.substr(path.size() + 1));
    }
    settings.push_back(*std::move(setting));
  }
  return settings;
}

Status ResolvePaths(const CommandText& command, const std::string& folder, const std::string& home,
                    std::vector<FlagSetting>& settings) {
  for (FlagSetting& setting : settings) {
    const FlagText* flag = FindFlag(command, setting.name);
    if (flag == nullptr || setting.value.starts_with('/') || !IsPath(*flag, setting.value)) {
      continue;
    }
    if (!setting.value.starts_with("~/")) {
      setting.value = Format("{}/{}", folder, setting.value);
    } else if (!home.empty()) {
      setting.value = home + setting.value.substr(1);
    } else {
      return Fail(Errc::kUsage, "{}: {} begins with ~/ and HOME is no absolute path; write it out",
                  setting.origin, setting.name);
    }
  }
  return {};
}

std::vector<FlagSetting> SettingsOf(
    std::span<const std::pair<std::string, std::string>> environment, const CommandText& command) {
  std::vector<FlagSetting> settings;
  for (const std::string& name : SettableNames(command)) {
    const std::string variable = VariableOf(name);
    for (const auto& [known, value] : environment) {
      if (known != variable || value.empty() || IsServiceLink(known, value)) continue;
      settings.push_back({name, value, variable});
    }
  }
  return settings;
}

bool IsServiceLink(std::string_view variable, std::string_view value) {
  return variable == "MOESTRO_PORT" &&
         std::ranges::any_of(std::initializer_list<std::string_view>{"tcp://", "udp://", "sctp://"},
                             [&](std::string_view scheme) { return value.starts_with(scheme); });
}

std::vector<std::pair<std::string, std::string>> MistypedVariables(
    std::span<const std::pair<std::string, std::string>> environment, const CommandText& command) {
  std::vector<std::string> known;
  for (const std::string& name : SettableNames(command)) known.push_back(VariableOf(name));
  std::vector<std::pair<std::string, std::string>> mistyped;
  for (const auto& [variable, value] : environment) {
    if (!variable.starts_with(kPrefix) || value.empty()) continue;
    if (std::ranges::contains(known, variable)) continue;
    const std::string_view rest = std::string_view(variable).substr(kPrefix.size());
    for (const std::string& name : known) {
      const std::string_view other = std::string_view(name).substr(kPrefix.size());
      if (!EditDistance(rest, other, std::min<size_t>(other.size() / 3, 2))) continue;
      mistyped.emplace_back(variable, name);
      break;
    }
  }
  return mistyped;
}

Result<ChosenSettings> ChooseSettings(const CommandText& command,
                                      std::span<const std::string> given,
                                      std::span<const std::vector<FlagSetting>> sources) {
  // Names of flags in the sources that take precedence.
  std::set<std::string> before = NamesGiven(command, given);
  std::set<std::string> known = before;  // `before`, and switches that are off
  std::set<std::string> dropped;
  std::vector<Candidate> chosen;
  for (const std::vector<FlagSetting>& source : sources) {
    std::set<std::string> here;
    for (const FlagSetting& setting : source) {
      const bool is_of_model = !setting.model.empty();
      const FlagText* flag = FindFlag(command, is_of_model ? kModelFlag : setting.name);
      if (flag == nullptr) continue;
      const std::string key =
          is_of_model ? Format("{}:{}", setting.model, setting.name) : flag->name();
      if (known.contains(key)) continue;
      TRY(std::vector<std::string> arguments,
          is_of_model ? ModelArguments(setting) : ArgumentsFor(*flag, setting));
      if (!arguments.empty() && ExcludesAny(*flag, before)) {
        dropped.insert(flag->name());
        continue;
      }
      if (!arguments.empty()) here.insert(flag->name());
      known.insert(key);
      chosen.push_back({flag, setting, std::move(arguments)});
    }
    before.merge(here);
  }
  for (const std::string& name : known) dropped.erase(name);
  DropNeedy(chosen, dropped);
  ChosenSettings result;
  for (Candidate& candidate : chosen) {
    for (std::string& argument : candidate.arguments) {
      result.arguments.push_back(std::move(argument));
    }
    if (candidate.arguments.empty()) continue;
    // The name that messages use.
    const bool is_of_model = !candidate.setting.model.empty();
    candidate.setting.name = is_of_model ? Format("{} {}:{}", kModelFlag, candidate.setting.model,
                                                  candidate.setting.name)
                                         : candidate.flag->name();
    result.used.push_back(std::move(candidate.setting));
  }
  result.arguments.insert(result.arguments.end(), given.begin(), given.end());
  return result;
}

Result<FlagSetting> ParseModelFlag(const CommandText& command, std::string_view value) {
  const size_t equals = value.find('=');
  const size_t colon = value.substr(0, equals).rfind(':');
  if (equals == std::string_view::npos || colon == std::string_view::npos || colon == 0 ||
      equals + 1 == value.size()) {
    return Fail(Errc::kUsage, "--{} is '{}'; write NAME:FLAG=VALUE, as coder:ctx=16384", kModelFlag,
                Printable(value));
  }
  FlagSetting setting{.name = std::string(value.substr(colon + 1, equals - colon - 1)),
                      .value = std::string(value.substr(equals + 1)),
                      .model = std::string(value.substr(0, colon))};
  setting.origin = Format("--{} {}:{}", kModelFlag, Printable(setting.model), setting.name);
  if (FindFlag(command, setting.name) == nullptr) {
    TRY_STATUS(UnknownName(setting.name, setting.origin, command));
  }
  return setting;
}

Result<std::vector<std::string>> ArgumentsOf(const CommandText& command,
                                             const FlagSetting& setting) {
  return ArgumentsFor(*FindFlag(command, setting.name), setting);
}

std::vector<std::string> ArgumentsWithout(const CommandText& command,
                                          std::span<const std::string> given,
                                          const std::set<std::string>& names) {
  std::vector<std::string> kept;
  for (const GivenPart& part : TakeApart(command, given)) {
    const bool is_named = std::ranges::any_of(
        part.names, [&](const std::string& name) { return names.contains(name); });
    if (is_named || part.is_positional || given[part.begin] == "--") continue;
    for (size_t i = part.begin; i < part.end; ++i) kept.push_back(given[i]);
  }
  return kept;
}

std::string PlaceOfSetting(std::string_view message, std::span<const FlagSetting> used) {
  size_t first = std::string_view::npos;
  std::string origin;
  for (const FlagSetting& setting : used) {
    const std::string name = "--" + setting.name;
    for (size_t at = message.find(name); at < first; at = message.find(name, at + 1)) {
      const size_t end = at + name.size();
      const bool ends =
          end >= message.size() ||
          (std::isalnum(static_cast<unsigned char>(message[end])) == 0 && message[end] != '-');
      if (!ends) continue;
      first = at;
      origin = setting.origin;
      break;
    }
  }
  return origin;
}

}  // namespace moestro
