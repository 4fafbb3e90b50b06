// SPDX-License-Identifier: MIT
#include "cli/program.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// Whether a word is a literal value; FILE and N are names of values.
bool IsLiteral(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::islower(c) || std::isdigit(c) || c == '_' || c == '-';
  });
}

}  // namespace

std::string FlagText::name() const {
  if (!positional.empty()) return LowerCase(positional);
  const auto is_long = [](const std::string& n) { return n.starts_with("--"); };
  const auto found = std::ranges::find_if(names, is_long);
  return found == names.end() ? names.front().substr(1) : found->substr(2);
}

bool FlagText::has_name(std::string_view name) const {
  return std::ranges::contains(names, name) || std::ranges::contains(off_names, name);
}

const CommandText* FindCommand(const ProgramText& program, std::string_view name) {
  const auto found = std::ranges::find(program.commands, name, &CommandText::name);
  return found == program.commands.end() ? nullptr : &*found;
}

std::vector<std::string> ChoicesOf(const FlagText& flag) {
  if (flag.limits.starts_with('{') && flag.limits.ends_with('}')) {
    return Split(std::string_view(flag.limits).substr(1, flag.limits.size() - 2), ',');
  }
  std::vector<std::string> choices;
  for (std::string& word : Split(flag.value, '|')) {
    if (IsLiteral(word)) choices.push_back(std::move(word));
  }
  if (!choices.empty()) return choices;
  std::vector<std::string> lines = Split(flag.help, '\n');
  for (size_t i = 1; i < lines.size(); ++i) {
    std::string word = lines[i].substr(0, lines[i].find(':'));
    if (word.size() < lines[i].size() && IsLiteral(word)) choices.push_back(std::move(word));
  }
  return choices;
}

bool TakesFile(const FlagText& flag) {
  return flag.positional == "MODEL" || flag.positional == "TRACE" || flag.value.contains("FILE");
}

bool TakesFolder(const FlagText& flag) { return flag.value.contains("DIR"); }

std::string ShortHelp(const FlagText& flag) {
  const std::string line = flag.help.substr(0, flag.help.find('\n'));
  size_t end = std::min({line.find("; "), line.find(" ("), line.size()});
  constexpr size_t kMost = 72;
  if (end > kMost) end = std::min(line.rfind(' ', kMost), kMost);
  return line.substr(0, end);
}

namespace {

// Paths, addresses and names of repositories have a slash.
bool LooksLikeModel(std::string_view typed) {
  return typed.contains('/') || IsNamedWith(typed, ".gguf");
}

}  // namespace

std::string UnknownCommand(std::string_view typed, const KnownCommands& known) {
  std::string all = Format("commands are {}", Joined(known.names));
  if (!known.other_names.empty()) {
    all += Format("; of {} {}", known.other_program, Joined(known.other_names));
  }
  all += Format(" (see {} --help)", known.program);
  if (typed.empty()) return "a command is missing: " + all;
  if (typed.starts_with('-')) {
    return Format("a command must come before '{}': {}", Printable(typed), all);
  }
  if (std::ranges::contains(known.other_names, typed)) {
    return Format("'{}' is a command of {}: {} {}", typed, known.other_program, known.other_start,
                  typed);
  }
  std::vector<std::string> names(known.names.begin(), known.names.end());
  names.append_range(known.other_names);
  if (const auto nearest = NearestName(typed, names)) {
    const bool is_own = std::ranges::contains(known.names, *nearest);
    const std::string& program = is_own ? known.program : known.other_start;
    return Format("'{}' is no command; did you mean '{} {}'? (see {} --help)", Printable(typed),
                  program, *nearest, program);
  }
  if (!known.for_files.empty() && LooksLikeModel(typed)) {
    return Format("'{}' is no command; to start a model: {} {}", Printable(typed), known.for_files,
                  Printable(typed, 4096));
  }
  return Format("'{}' is no command; {}", Printable(typed), all);
}

std::string UnknownFlag(std::string_view typed, std::string_view command,
                        std::span<const std::string> flags) {
  const std::string_view name = typed.substr(0, typed.find('='));
  const std::optional<std::string> nearest = NearestName(name, flags);
  const std::string hint = nearest ? Format("; did you mean {}?", *nearest) : "";
  return Format("{} has no flag '{}'{} (see {} --help)", command, Printable(name), hint, command);
}

namespace {

// Spin count of OpenMP threads between two pieces of work before they sleep: 30 to 100 us, as our
// own threads do (base/wait_word.h). libgomp's default holds a core for 12 ms, during which threads
// that read from disk, and other programs, starve; sleeping at once makes small graphs several
// times slower. Beside one busy program per core, 20000 gave 13 to 50 % of the quiet speed and 2000
// gives 35 to 55; quiet, they are alike (Qwen3-30B's shape, bench).
constexpr const char* kSpinCount = "2000";
constexpr const char* kSpinVariable = "GOMP_SPINCOUNT";
constexpr const char* kAgainVariable = "MOESTRO_STARTED_AGAIN";

// libgomp reads its settings before main(), so the program has to start itself once more.
void SetUpOpenMp(char** argv) {
  if (std::getenv(kSpinVariable) != nullptr || std::getenv(kAgainVariable) != nullptr) return;
  setenv(kSpinVariable, kSpinCount, 1);
  setenv(kAgainVariable, "1", 1);
  // Starts by the program's own path, so that the process keeps its name. Where both calls fail,
  // the program only runs slower.
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv(self.c_str(), argv);
  execv("/proc/self/exe", argv);
}

}  // namespace

void SetUpProcess(char** argv) {
  SetUpOpenMp(argv);
  // A process that was started by /proc/self/exe is called "exe" in lists and in the kernel's log.
  prctl(PR_SET_NAME, program_invocation_short_name);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

int RunProgram(const std::function<int()>& main) {
  return Caught(main, [](std::string_view why) {
    PrintOnStderr(Format("moestro: {}\n", why));
    return 1;
  });
}

}  // namespace moestro
