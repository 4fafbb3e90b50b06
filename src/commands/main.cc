// SPDX-License-Identifier: MIT
// A user's command line: finds the subcommand and turns its result into an exit code, or starts the
// laboratory's program.
#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "commands/configuration.h"
#include "house/model_process.h"
#include "remote/worker.h"
#include "serve/helper_processes.h"

namespace moestro {
namespace {

// llama.cpp's short names of more than one letter, which the parser would take apart.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kLongNames = {{
    {"-cnv", "--conversation"},
    {"-sys", "--system-prompt"},
    {"-st", "--single-turn"},
}};

std::vector<std::string> Arguments(std::span<char*> argv) {
  std::vector<std::string> arguments;
  for (const char* argument : argv.subspan(std::min<size_t>(argv.size(), 1))) {
    arguments.emplace_back(argument);
    for (const auto& [name, long_name] : kLongNames) {
      if (arguments.back() == name) arguments.back() = long_name;
    }
  }
  return arguments;
}

// The process of one of a house's models gets all its flags from the house.
int Main(std::span<char*> argv) {
  const std::unique_ptr<CommandLine> line = MakeCommandLine(MOESTRO_VERSION);
  std::vector<std::string> arguments = Arguments(argv);
  const bool is_worker = !arguments.empty() && arguments.front() == kWorkerFlags;
  if (is_worker) arguments.front() = "serve";
  const auto action =
      is_worker ? line->Parse(std::move(arguments)) : ParseConfigured(*line, std::move(arguments));
  return action ? (*action)() : ExitCode(std::unexpected(action.error()));
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == moestro::kWorkerArgument) return moestro::RemoteWorkerMain();
  if (argc > 1 && moestro::IsLabCommand(argv[1])) {
    return moestro::RunProgram(
        [&] { return moestro::ExitCode(moestro::StartLab(MOESTRO_VERSION, argv)); });
  }
  moestro::SetUpProcess(argv);
  if (argc == 2 && argv[1] == moestro::kHelpersArgument) {
    return moestro::Caught([] { return moestro::StartHelpersMain(); },
                           [](std::string_view) { return 1; });
  }
  return moestro::RunProgram([&] { return moestro::Main({argv, static_cast<size_t>(argc)}); });
}
