// SPDX-License-Identifier: MIT
// The program: its commands by name, its commands and flags as plain values, advice for words that
// it does not know, and its start.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

// The commands of both programs by name, in the order of their lists: `moestro` is what a user
// runs, `moestro-lab` what a researcher runs. Each program lists or suggests the other's.

struct CommandName {
  std::string_view name;
  std::string_view help;  // a line
};

inline constexpr std::string_view kUserProgram = "moestro";
inline constexpr std::string_view kLabProgram = "moestro-lab";

inline constexpr std::array kUserCommands = {
    CommandName{"run", "generate text"},
    CommandName{"serve", "answer OpenAI's and Anthropic's clients over HTTP"},
    CommandName{"health", "ask a server on this machine whether it is ready"},
    CommandName{"plan", "whether a model fits here, and how fast it will be"},
    CommandName{"pull", "fetches a model by its name"},
    CommandName{"list", "the models of the cache that tools of the hub share"},
    CommandName{"remove", "removes a model from the cache"},
    CommandName{"bench", "measure prefill and decode speed"},
    CommandName{"inspect", "what a model holds and what fits in memory"},
    CommandName{"devices", "list what can compute, and how fast"},
    CommandName{"doctor", "what is slow or wrong on this machine, and the remedy"},
};

inline constexpr std::array kLabCommands = {
    CommandName{"eval", "perplexity, and how far a run is from the exact one"},
    CommandName{"logits", "logits after some tokens, as JSON"},
    CommandName{"trace", "record which experts a text is routed to"},
    CommandName{"sim", "replay a trace against policies and cache sizes"},
    CommandName{"profile", "learn from text which experts follow which"},
    CommandName{"imatrix", "measure on text which weights of the experts matter"},
    CommandName{"quantize", "write a model's experts at a lower type"},
    CommandName{"fit", "a width for each expert, fitted to a tolerance"},
    CommandName{"merge", "put together what the shards of a run left"},
    CommandName{"synth", "write a GGUF of a real model's shape, to measure a machine"},
    CommandName{"convert", "write a Hugging Face folder as a GGUF file"},
};

constexpr bool IsLabCommand(std::string_view name) {
  return std::ranges::contains(kLabCommands, name, &CommandName::name);
}

// The row of a name; a name without a row does not compile.
consteval CommandName CommandNamed(std::string_view name) {
  const auto* const user = std::ranges::find(kUserCommands, name, &CommandName::name);
  if (user != kUserCommands.end()) return *user;
  const auto* const lab = std::ranges::find(kLabCommands, name, &CommandName::name);
  if (lab == kLabCommands.end()) throw "no such command";
  return *lab;
}

// `moestro` starts the laboratory with this and its own version before the command's arguments:
// "--called-by-moestro=0.1.0".
inline constexpr std::string_view kCalledByMoestro = "--called-by-moestro=";

// The commands and flags of the program as plain values, from which man pages, completions and
// settings are made. CommandLine::Describe() returns them, so that they match the program.

struct FlagText {
  std::vector<std::string> names = {};      // with their dashes: "-c", "--ctx", "--ctx-size"
  std::vector<std::string> off_names = {};  // names that turn a switch off: "--no-perf"
  std::string positional = {};              // "MODEL"; a positional argument has no names
  std::string value = {};                   // the name of the value; empty: a switch
  std::string limits = {};                  // "INT in [1 - 64]", "{a,b}"; empty: any value
  std::string help = {};                // several lines: "NAME: what it is" each, after the first
  std::string group = {};               // the heading
  std::string usual = {};               // the default; empty: none is shown
  std::vector<std::string> needs = {};  // other flags of the command, by name()
  std::vector<std::string> excludes = {};
  bool is_required = false;
  bool is_output = false;  // a file that is written

  bool is_switch() const { return positional.empty() && value.empty(); }
  // Name in settings: the first long name without dashes, or the argument's in small letters.
  std::string name() const;
  bool has_name(std::string_view name) const;  // `name` with its dashes is one of the flag's names
};

struct CommandText {
  std::string name;
  std::string help;
  std::string footer = {};
  std::vector<FlagText> flags = {};  // in the order of the help, --help among them
};

struct ProgramText {
  std::string name;
  std::string version;  // "0.1.0"
  std::string summary;
  std::string footer;
  std::vector<CommandText> commands;
  std::string before = {};               // a command, in pages and examples; empty: the name
  std::string other_program = {};        // empty: there is none
  std::vector<CommandText> others = {};  // commands of that which the help lists, too

  const std::string& starter() const { return before.empty() ? name : before; }
};

// nullptr: no such command.
const CommandText* FindCommand(const ProgramText& program, std::string_view name);

// Values of a flag, for completions: the alternatives that help or limits spell out.
std::vector<std::string> ChoicesOf(const FlagText& flag);
bool TakesFile(const FlagText& flag);
bool TakesFolder(const FlagText& flag);

// The first line of help, cut where its first sentence or part ends.
std::string ShortHelp(const FlagText& flag);

// Messages about a command or a flag that does not exist. Pure; each is one line for Errc::kUsage.
// The typed word appears cut and without control characters.

struct KnownCommands {
  std::string program;
  std::span<const std::string> names;
  std::string for_files = {};      // "moestro run", for a user who typed a model; empty: none
  std::string other_program = {};  // with commands that this one does not have; empty: none
  std::string other_start = {};    // typed before one of them: "moestro"
  std::span<const std::string> other_names = {};
};

// `typed` stands where a command should; empty: nothing does.
std::string UnknownCommand(std::string_view typed, const KnownCommands& known);

// `command` is the text before --help, "moestro run"; `flags` are the command's long names,
// "--prompt". A value after "=" is not part of the name.
std::string UnknownFlag(std::string_view typed, std::string_view command,
                        std::span<const std::string> flags);

// Starts the program once more if OpenMP has no settings yet, which it reads before main(); names
// the process as argv[0] does; then makes a closed pipe and a limit on the size of files errors of
// write(), not the end of the process. REQUIRES: a process with one thread, and no file that the
// program has opened.
void SetUpProcess(char** argv);

// The result of `main`, or 1 and a line on standard error if it throws.
int RunProgram(const std::function<int()>& main);

}  // namespace moestro
