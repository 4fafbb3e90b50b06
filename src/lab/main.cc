// SPDX-License-Identifier: MIT
// The laboratory's command line. `moestro` starts it for its commands, too (commands/commands.h).
#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "base/text.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "lab/commands.h"
#include "remote/worker.h"

namespace moestro {
namespace {

int Main(std::span<char* const> argv) {
  const std::span<char* const> given = argv.subspan(std::min<size_t>(argv.size(), 1));
  std::vector<std::string> arguments(given.begin(), given.end());
  std::string_view name = kLabProgram;
  if (!arguments.empty() && arguments.front().starts_with(kCalledByMoestro)) {
    const std::string version = arguments.front().substr(kCalledByMoestro.size());
    if (version != MOESTRO_VERSION) {
      return PrintError(
          {.code = Errc::kUnsupported,
           .message = Format("{} is of version {}, and moestro {} called it: their "
                             "flags and files may differ; install both of one version",
                             argv.front(), MOESTRO_VERSION, Printable(version))});
    }
    name = kUserProgram;
    arguments.erase(arguments.begin());
  }
  const std::unique_ptr<CommandLine> line = MakeLabCommandLine(std::string(name), MOESTRO_VERSION);
  const auto action = line->Parse(std::move(arguments));
  return action ? (*action)() : ExitCode(std::unexpected(action.error()));
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == moestro::kWorkerArgument) return moestro::RemoteWorkerMain();
  moestro::SetUpProcess(argv);
  return moestro::RunProgram([&] { return moestro::Main({argv, static_cast<size_t>(argc)}); });
}
