// SPDX-License-Identifier: MIT
// The command line: finds the subcommand and turns its result into an exit code.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/format.h"
#include "base/visible.h"
#include "cli/flags.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "commands/configuration.h"
#include "remote/worker.h"
#include "serve/helper_processes.h"

namespace moestro {
namespace {

// Spin count of OpenMP threads between two pieces of work before they sleep: 30 to 100 us, as our
// own threads do (base/spin.h). libgomp's default holds a core for 12 ms, during which threads that
// read from disk, and other programs, starve; sleeping at once makes small graphs several times
// slower. Beside one busy program per core, 20000 gave 13 to 50 % of the quiet speed and 2000 gives
// 35 to 55; quiet, they are alike (Qwen3-30B's shape, bench).
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

// llama.cpp's short names of more than one letter, which the parser would take apart.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kLongNames = {{
    {"-cnv", "--conversation"},
    {"-sys", "--system-prompt"},
    {"-st", "--single-turn"},
}};

std::vector<std::string> Arguments(std::span<char*> argv) {
  std::vector<std::string> arguments;
  for (const char* argument : argv.subspan(1)) {
    arguments.emplace_back(argument);
    for (const auto& [name, long_name] : kLongNames) {
      if (arguments.back() == name) arguments.back() = long_name;
    }
  }
  return arguments;
}

int Main(std::span<char*> argv) {
  const std::unique_ptr<CommandLine> line = MakeCommandLine(MOESTRO_VERSION);
  const auto action = ParseConfigured(*line, Arguments(argv));
  return action ? (*action)() : ExitCode(std::unexpected(action.error()));
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == moestro::kWorkerArgument) return moestro::RemoteWorkerMain();
  moestro::SetUpOpenMp(argv);
  // A closed pipe and a limit on the size of files are errors of write(), not the end of the
  // process.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  if (argc == 2 && argv[1] == moestro::kHelpersArgument) {
    return moestro::Caught([] { return moestro::StartHelpersMain(); },
                           [](std::string_view) { return 1; });
  }
  return moestro::Caught([&] { return moestro::Main({argv, static_cast<size_t>(argc)}); },
                         [](std::string_view why) {
                           moestro::PrintOnStderr(moestro::Format("moestro: {}\n", why));
                           return 1;
                         });
}
