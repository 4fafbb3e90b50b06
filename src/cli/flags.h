// SPDX-License-Identifier: MIT
// Subcommands and their flags. CLI11 stays in flags.cc: its headers take longer to compile than the
// rest of a command.
//
// Flag and Flags are handles, valid as long as their CommandLine. Variables that flags write to
// must outlive CommandLine::Parse().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "cli/program.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace moestro {

class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag Required() const;
  Flag Type(const std::string& name) const;   // the name of the value in the help
  Flag Group(const std::string& name) const;  // heading in the help
  Flag ShowDefault() const;                   // the help shows the variable's current value
  // Lets the flag come several times, with one value each.
  Flag Repeatable() const;
  // Limits of the value; other values are usage errors.
  Flag Positive() const;
  Flag NonNegative() const;
  Flag Between(uint32_t low, uint32_t high) const;
  Flag Between(double low, double high) const;
  Flag OneOf(const std::vector<std::string>& values) const;
  // Needs or excludes another flag of the same command; `other` is a name such as "--policy".
  Flag Needs(Flag other) const;
  Flag Needs(const std::string& other) const;
  Flag Excludes(Flag other) const;
  Flag Excludes(const std::string& other) const;
  bool is_given() const;  // after CommandLine::Parse()

 private:
  CLI::Option* option_;
};

// A flag that names a file to write.
struct OutputFlag {
  CLI::Option* option = nullptr;
  OutputPath* path = nullptr;
  // The file beside a model (learned/beside_model.h) that the command makes and so may replace.
  using Beside = std::string (*)(const std::string& model);
  Beside beside = nullptr;
};

// The flags of one subcommand. `names` is "-p,--prompt"; without dashes a positional argument.
class Flags {
 public:
  Flags(CLI::App* command, std::vector<OutputFlag>& outputs)
      : command_(command), outputs_(&outputs) {}

  void Footer(const std::string& text);
  void Group(const std::string& name);       // heading of the flags added from now on
  Flag Find(const std::string& name) const;  // "--ctx". REQUIRES: the flag exists.

  // T: not bool, see AddSwitch(); flags.cc lists the types.
  template <class T>
  Flag Add(const std::string& names, T& value, const std::string& help);
  // A file that the command writes, of type FILE: every such file is added by this and by no other
  // function. After Parse() the output spares the files that the other flags name, to read or to
  // write, and the files beside a model, which are read unnamed, except `beside`.
  Flag AddOutput(const std::string& names, OutputPath& path, const std::string& help,
                 OutputFlag::Beside beside = nullptr);
  // "--perf,!--no-perf": the second name turns the switch off.
  Flag AddSwitch(const std::string& names, bool& value, const std::string& help);
  // `parse` takes the text; its error becomes a usage error.
  Flag AddParsed(const std::string& names, const std::string& type, const std::string& help,
                 std::function<Status(const std::string&)> parse);
  // Adds a repeatable flag: one call of `parse` for each value.
  Flag AddParsedEach(const std::string& names, const std::string& type, const std::string& help,
                     std::function<Status(const std::string&)> parse);

 private:
  CLI::App* command_;
  std::vector<OutputFlag>* outputs_;
};

// Commands of another program, for help and advice.
struct OtherCommands {
  std::string program;
  std::string start;  // what a user types before a command: "moestro"
  std::span<const CommandName> commands;
  std::string heading;  // of their list in the help; empty: the help does not list them
};

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& summary, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void Footer(const std::string& text);
  // The command for a user who names a model and no command: "moestro run".
  void NameCommandForFiles(const std::string& name) { command_for_files_ = name; }
  // Adds another program's commands to the help and to the answers to unknown names. The rows of
  // `others` must outlive the command line.
  void NameOthers(OtherCommands others);
  // `run` returns the exit code.
  Flags AddCommand(const CommandName& name, std::function<int()> run);
  // The action of the arguments: a command, or printing the help or the version. kUsage: a message
  // that names the flag, the value and the command with the right --help; a name that does not
  // exist is answered with the nearest one (cli/program.h). kIo: a file to write is one that
  // the command reads (kUsage: two are one). `read`: files that were read before it.
  Result<std::function<int()>> Parse(std::vector<std::string> arguments,
                                     std::span<const std::string> read = {});
  // The arguments of the last Parse(), the command's name first.
  const std::vector<std::string>& arguments() const { return arguments_; }
  // The first long name of each flag of a command: "--prompt". Without --help and arguments that
  // have no dashes. REQUIRES: the command exists.
  std::vector<std::string> FlagNames(const std::string& command) const;
  // The whole command line, --help among the flags.
  ProgramText Describe() const;

 private:
  Status GuardOutputs(std::span<const std::string> read);

  std::unique_ptr<CLI::App> app_;
  std::map<const CLI::App*, std::vector<OutputFlag>> outputs_;  // of each command
  std::string command_for_files_;
  OtherCommands others_;
  std::function<int()> chosen_;
  std::vector<std::string> arguments_;
};

}  // namespace moestro
