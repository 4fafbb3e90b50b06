// SPDX-License-Identifier: MIT
#include "cli/flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <concepts>
#include <cstdio>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/program.h"
#include "learned/beside_model.h"

namespace moestro {
namespace {

void ThrowUnlessOk(const std::string& names, const Status& status) {
  if (!status) throw CLI::ValidationError(names, status.error().message);
}

std::vector<std::string> LongNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The first argument that has the form of a flag and that `app` does not have. CLI11 complains of a
// required flag that is missing first, which may be the one that was mistyped.
std::optional<std::string> UnknownFlagOf(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  const auto flag = std::ranges::find_if(
      unknown, [](const std::string& text) { return text.size() > 1 && text.starts_with('-'); });
  return flag == unknown.end() ? std::nullopt : std::optional(*flag);
}

std::string UnknownCommandMessage(const CLI::App& app, std::string_view typed,
                                  const std::string& command_for_files,
                                  const OtherCommands& others) {
  std::vector<std::string> names;
  std::vector<std::string> other_names;
  for (const CommandName& other : others.commands) other_names.emplace_back(other.name);
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!std::ranges::contains(other_names, command->get_name())) {
      names.push_back(command->get_name());
    }
  }
  return UnknownCommand(typed, {.program = app.get_name(),
                                .names = names,
                                .for_files = command_for_files,
                                .other_program = others.program,
                                .other_start = others.start,
                                .other_names = other_names});
}

// Message about a name that does not exist; empty: the error is another.
std::string UnknownNameMessage(const CLI::App& app, const std::string& command_for_files,
                               const OtherCommands& others) {
  if (app.get_subcommands().empty()) {
    const std::vector<std::string> unknown = app.remaining();
    return UnknownCommandMessage(app, unknown.empty() ? "" : unknown.front(), command_for_files,
                                 others);
  }
  if (const auto flag = UnknownFlagOf(app)) {
    return UnknownFlag(*flag, app.get_name(), LongNames(app));
  }
  for (const CLI::App* command : app.get_subcommands()) {
    if (const auto flag = UnknownFlagOf(*command)) {
      const std::string name = Format("{} {}", app.get_name(), command->get_name());
      return UnknownFlag(*flag, name, LongNames(*command));
    }
  }
  return "";
}

// Type of a number in a variable that may be unset (std::optional).
template <class T>
struct NumberIn {
  using Type = T;
};
template <class T>
struct NumberIn<std::optional<T>> {
  using Type = T;
};

template <class T>
constexpr const char* kNumberName = std::floating_point<T>      ? "FLOAT"
                                    : std::unsigned_integral<T> ? "UINT"
                                                                : "INT";

// Error text for a text that is not a number. CLI11's own readers accept "0,8" as 8, "1'0" as 10,
// and more.
template <Number T>
std::string NoNumber(const std::string& text) {
  std::string wanted = std::integral<T> ? "whole number" : "number";
  if (std::unsigned_integral<T>) wanted += " from 0 on";
  std::string pointed = text;
  std::ranges::replace(pointed, ',', '.');
  const bool is_pointed = std::floating_point<T> && pointed != text && ParseNumber<T>(pointed);
  return Format("'{}' is no {}{}", Printable(text, 300), wanted,
                is_pointed ? Format("; write {}", pointed) : "");
}

// Adds an option for a number of `variable`'s type; an unset variable shows no default.
template <class T>
CLI::Option* AddNumber(CLI::App& command, const std::string& names, T& variable,
                       const std::string& help) {
  using Value = NumberIn<T>::Type;
  const auto set = [&variable, names](const CLI::results_t& texts) {
    const std::optional<Value> number = ParseNumber<Value>(texts.front());
    if (!number) throw CLI::ValidationError(names, NoNumber<Value>(texts.front()));
    variable = *number;
    return true;
  };
  const auto usual = [&variable] {
    if constexpr (std::same_as<T, Value>) return Format("{}", variable);
    return std::string();
  };
  CLI::Option* option = command.add_option(names, set, help, false, usual);
  return option->type_name(kNumberName<Value>)->expected(1);
}

// Limits of a number. A text that is not a number passes, so that its reader reports it.
template <Number T>
CLI::Validator Limits(std::function<bool(T)> is_within, const std::string& words,
                      const std::string& name) {
  return {[=](const std::string& text) {
            const std::optional<T> number = ParseNumber<T>(text);
            const bool is_wrong = number && !is_within(*number);
            return is_wrong ? Format("'{}' is not {}", text, words) : std::string();
          },
          name};
}

template <Number T>
CLI::Validator Range(T low, T high, const char* name) {
  return Limits<T>([=](T number) { return number >= low && number <= high; },
                   Format("from {} to {}", low, high), Format("{} in [{} - {}]", name, low, high));
}

// The first line of an error as a sentence, with the --help to read.
std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error,
                         const std::string& command_for_files, const OtherCommands& others) {
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  if (code == CLI::ExitCodes::RequiredError || code == CLI::ExitCodes::ExtrasError) {
    const std::string unknown = UnknownNameMessage(app, command_for_files, others);
    if (!unknown.empty()) return unknown;
  }
  const std::string message = error.what();
  std::string command = app.get_name();
  for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
  return Format("{} (see {} --help)", message.substr(0, message.find('\n')), command);
}

// "UINT:INT in [1 - 64]" is CLI11's text for a value and its limits; a name may have a colon, too.
void DescribeValue(const CLI::Option& option, FlagText& text) {
  if (option.get_items_expected_max() == 0) return;
  const std::string type = option.get_type_name();
  size_t end = type.size();
  for (const char* limits :
       {":{", ":INT in", ":UINT in", ":FLOAT in", ":POSITIVE", ":NONNEGATIVE"}) {
    end = std::min(end, type.find(limits));
  }
  text.value = type.substr(0, end);
  if (end < type.size()) text.limits = type.substr(end + 1);
  if (text.value == "UINT" || text.value == "INT") text.value = "N";
  if (text.value == "FLOAT") text.value = "X";
}

FlagText DescribeFlag(const CLI::Option& option) {
  FlagText text{.help = option.get_description(),
                .group = option.get_group(),
                .usual = option.get_default_str(),
                .is_required = option.get_required()};
  if (option.get_positional()) text.positional = option.get_name();
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) {
    const bool turns_off =
        std::ranges::find(option.get_fnames(), name) != option.get_fnames().end();
    (turns_off ? text.off_names : text.names).push_back("--" + name);
  }
  DescribeValue(option, text);
  if (!text.positional.empty()) text.value = text.positional;
  return text;
}

// Files behind "KNOB=" in a value of settings: low=FILE;norms=FILE.
std::vector<std::string> FilesInSettings(std::string_view value) {
  std::vector<std::string> files;
  while (!value.empty()) {
    const size_t end = std::min(value.find(';'), value.size());
    const std::string_view setting = value.substr(0, end);
    value.remove_prefix(std::min(end + 1, value.size()));
    const size_t equals = setting.find('=');
    if (equals == std::string_view::npos) continue;
    std::string file(setting.substr(equals + 1));
    if (access(file.c_str(), F_OK) == 0) files.push_back(std::move(file));
  }
  return files;
}

// The files that the values of an option name, all parts of a split model, and the files that lie
// beside a model and are read unnamed; without the one that `output` may replace.
std::vector<std::string> FilesNamedBy(const CLI::Option& option, const OutputFlag& output) {
  const FlagText flag = DescribeFlag(option);
  const bool is_model = flag.value.contains("MODEL");
  const bool may_be_file =
      !flag.positional.empty() || TakesFile(flag) || TakesFolder(flag) || is_model;
  if (option.count() == 0) return {};
  std::vector<std::string> files;
  for (const std::string& value : option.results()) {
    std::ranges::move(may_be_file ? PartsOfSplit(value) : FilesInSettings(value),
                      std::back_inserter(files));
    if (!is_model) continue;
    for (std::string& file : FilesBeside(value)) {
      const bool is_made = output.beside != nullptr && file == output.beside(value);
      if (!is_made && access(file.c_str(), F_OK) == 0) files.push_back(std::move(file));
    }
  }
  return files;
}

CommandText DescribeCommand(const CLI::App& command, const std::vector<OutputFlag>& outputs) {
  CommandText text{.name = command.get_name(),
                   .help = command.get_description(),
                   .footer = command.get_footer(),
                   .flags = {}};
  const std::vector<const CLI::Option*> options = command.get_options();
  for (const CLI::Option* option : options) {
    text.flags.push_back(DescribeFlag(*option));
    text.flags.back().is_output = std::ranges::contains(outputs, option, &OutputFlag::option);
  }
  const auto name_of = [&](const CLI::Option* wanted) {
    const auto at = std::ranges::find(options, wanted) - options.begin();
    return text.flags[static_cast<size_t>(at)].name();
  };
  for (size_t i = 0; i < options.size(); ++i) {
    for (const CLI::Option* o : options[i]->get_needs()) text.flags[i].needs.push_back(name_of(o));
    for (const CLI::Option* o : options[i]->get_excludes()) {
      text.flags[i].excludes.push_back(name_of(o));
    }
    std::ranges::sort(text.flags[i].needs);  // CLI11 orders them by address
    std::ranges::sort(text.flags[i].excludes);
  }
  return text;
}

}  // namespace

Flag Flag::Required() const { return Flag(option_->required()); }
Flag Flag::Type(const std::string& name) const { return Flag(option_->type_name(name)); }
Flag Flag::Group(const std::string& name) const { return Flag(option_->group(name)); }
Flag Flag::ShowDefault() const { return Flag(option_->capture_default_str()); }
Flag Flag::Repeatable() const { return Flag(option_->allow_extra_args(false)); }
Flag Flag::Positive() const {
  return Flag(option_->check(
      Limits<double>([](double number) { return number > 0.0; }, "above 0", "POSITIVE")));
}
Flag Flag::NonNegative() const {
  return Flag(option_->check(
      Limits<double>([](double number) { return number >= 0.0; }, "0 or above", "NONNEGATIVE")));
}
Flag Flag::Between(uint32_t low, uint32_t high) const {
  return Flag(option_->check(Range<int64_t>(low, high, kNumberName<uint32_t>)));
}
Flag Flag::Between(double low, double high) const {
  return Flag(option_->check(Range(low, high, kNumberName<double>)));
}
Flag Flag::OneOf(const std::vector<std::string>& values) const {
  return Flag(option_->check(CLI::IsMember(values)));
}
Flag Flag::Needs(Flag other) const { return Flag(option_->needs(other.option_)); }
Flag Flag::Needs(const std::string& other) const { return Flag(option_->needs(other)); }
Flag Flag::Excludes(Flag other) const { return Flag(option_->excludes(other.option_)); }
Flag Flag::Excludes(const std::string& other) const { return Flag(option_->excludes(other)); }
bool Flag::is_given() const { return option_->count() > 0; }

void Flags::Footer(const std::string& text) { command_->footer(text); }
void Flags::Group(const std::string& name) { command_->option_defaults()->group(name); }

Flag Flags::Find(const std::string& name) const { return Flag(command_->get_option(name)); }

template <class T>
Flag Flags::Add(const std::string& names, T& value, const std::string& help) {
  if constexpr (Number<typename NumberIn<T>::Type>)
    return Flag(AddNumber(*command_, names, value, help));
  else
    return Flag(command_->add_option(names, value, help));
}
template Flag Flags::Add(const std::string&, double&, const std::string&);
template Flag Flags::Add(const std::string&, float&, const std::string&);
template Flag Flags::Add(const std::string&, int32_t&, const std::string&);
template Flag Flags::Add(const std::string&, int64_t&, const std::string&);
template Flag Flags::Add(const std::string&, uint32_t&, const std::string&);
template Flag Flags::Add(const std::string&, uint64_t&, const std::string&);
template Flag Flags::Add(const std::string&, std::string&, const std::string&);
template Flag Flags::Add(const std::string&, std::optional<uint32_t>&, const std::string&);
template Flag Flags::Add(const std::string&, std::optional<double>&, const std::string&);
template Flag Flags::Add(const std::string&, std::optional<std::string>&, const std::string&);
template Flag Flags::Add(const std::string&, std::vector<std::string>&, const std::string&);

Flag Flags::AddOutput(const std::string& names, OutputPath& path, const std::string& help,
                      OutputFlag::Beside beside) {
  CLI::Option* option = command_->add_option_function<std::string>(
      names, [&path](const std::string& text) { path = text; }, help);
  outputs_->push_back({.option = option, .path = &path, .beside = beside});
  return Flag(option->type_name("FILE"));
}

Flag Flags::AddSwitch(const std::string& names, bool& value, const std::string& help) {
  return Flag(command_->add_flag(names, value, help));
}

Flag Flags::AddParsed(const std::string& names, const std::string& type, const std::string& help,
                      std::function<Status(const std::string&)> parse) {
  CLI::Option* option = command_->add_option_function<std::string>(
      names,
      [parse = std::move(parse), names](const std::string& text) {
        ThrowUnlessOk(names, parse(text));
      },
      help);
  return Flag(option->type_name(type));
}

Flag Flags::AddParsedEach(const std::string& names, const std::string& type,
                          const std::string& help,
                          std::function<Status(const std::string&)> parse) {
  CLI::Option* option = command_->add_option_function<std::vector<std::string>>(
      names,
      [parse = std::move(parse), names](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) ThrowUnlessOk(names, parse(text));
      },
      help);
  return Flag(option->type_name(type)->allow_extra_args(false));
}

CommandLine::CommandLine(const std::string& program, const std::string& summary,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(summary, program)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
}

CommandLine::~CommandLine() = default;

void CommandLine::Footer(const std::string& text) { app_->footer(text); }

Flags CommandLine::AddCommand(const CommandName& name, std::function<int()> run) {
  CLI::App* command = app_->add_subcommand(std::string(name.name), std::string(name.help));
  command->callback([this, run = std::move(run)] { chosen_ = run; });
  return {command, outputs_[command]};
}

// The help's list is CLI11's: of commands that have neither flags nor an action.
void CommandLine::NameOthers(OtherCommands others) {
  others_ = std::move(others);
  if (others_.heading.empty()) return;
  for (const CommandName& other : others_.commands) {
    app_->add_subcommand(std::string(other.name), std::string(other.help))->group(others_.heading);
  }
}

std::vector<std::string> CommandLine::FlagNames(const std::string& command) const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_subcommand(command)->get_options()) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
    names.push_back("--" + option->get_lnames().front());
  }
  return names;
}

ProgramText CommandLine::Describe() const {
  ProgramText text{.name = app_->get_name(),
                   .version = app_->version(),
                   .summary = app_->get_description(),
                   .footer = app_->get_footer(),
                   .commands = {},
                   .other_program = others_.program,
                   .others = {}};
  // "moestro 0.1.0"
  text.version.erase(0, text.version.rfind(' ') + 1);
  for (const CLI::App* command : app_->get_subcommands({})) {
    const auto outputs = outputs_.find(command);
    if (outputs == outputs_.end()) continue;  // another program's
    text.commands.push_back(DescribeCommand(*command, outputs->second));
  }
  if (others_.heading.empty()) return text;
  for (const CommandName& other : others_.commands) {
    text.others.push_back({.name = std::string(other.name), .help = std::string(other.help)});
  }
  return text;
}

// Outputs never replace another file that the command line names. They are checked here, before any
// work, and again where the file is made: by then links may lead elsewhere.
Status CommandLine::GuardOutputs(std::span<const std::string> read) {
  for (const CLI::App* command : app_->get_subcommands()) {
    const std::vector<OutputFlag>& outputs = outputs_[command];
    for (const CLI::Option* option : command->get_options()) {
      const bool is_output = std::ranges::contains(outputs, option, &OutputFlag::option);
      const auto use = is_output ? OutputPath::Use::kWritten : OutputPath::Use::kRead;
      for (const OutputFlag& output : outputs) {
        if (output.option != option) output.path->Spare(FilesNamedBy(*option, output), use);
      }
    }
    for (const OutputFlag& output : outputs) {
      output.path->Spare(read);
      TRY_STATUS(output.path->Check());
    }
  }
  return {};
}

Result<std::function<int()>> CommandLine::Parse(std::vector<std::string> arguments,
                                                std::span<const std::string> read) {
  if (!arguments.empty() &&
      std::ranges::contains(others_.commands, arguments.front(), &CommandName::name)) {
    return Fail(Errc::kUsage, "{}",
                UnknownCommandMessage(*app_, arguments.front(), command_for_files_, others_));
  }
  arguments_ = arguments;
  std::ranges::reverse(arguments);  // the order in which CLI11 takes them
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      return Fail(Errc::kUsage, "{}", UsageMessage(*app_, error, command_for_files_, others_));
    }
    std::ostringstream text;  // --help, --version
    app_->exit(error, text, text);
    return [text = text.str()] { return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0; };
  }
  TRY_STATUS(GuardOutputs(read));
  return chosen_;
}

}  // namespace moestro
