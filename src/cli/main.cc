// SPDX-License-Identifier: MIT
// The command line: finds the subcommand and turns what it says into an exit code.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/cmd_bench.h"
#include "cli/cmd_inspect.h"
#include "cli/cmd_logits.h"
#include "cli/cmd_profile.h"
#include "cli/cmd_run.h"
#include "cli/cmd_sim.h"
#include "cli/cmd_synth.h"
#include "cli/cmd_trace.h"

namespace moestro {
namespace {

// How long OpenMP threads spin between two pieces of work before they sleep. libgomp's own default
// holds a core for 12 ms, during which the threads that read from disk starve; sleeping at once
// makes small graphs several times slower. Measured with one busy process beside two threads.
constexpr const char* kSpinCount = "20000";
constexpr const char* kSpinVariable = "GOMP_SPINCOUNT";
constexpr const char* kAgainVariable = "MOESTRO_STARTED_AGAIN";

// libgomp reads its settings before main(), so the program has to start itself once more.
void SetUpOpenMp(char** argv) {
  if (std::getenv(kSpinVariable) != nullptr || std::getenv(kAgainVariable) != nullptr) return;
  setenv(kSpinVariable, kSpinCount, 1);
  setenv(kAgainVariable, "1", 1);
  execv("/proc/self/exe", argv);  // where it fails, the program only runs slower
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

int ReportUsage(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  std::string_view message = error.what();
  message = message.substr(0, message.find('\n'));
  std::string command = "moestro";
  for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
  std::fprintf(stderr, "moestro: %.*s (see %s --help)\n", static_cast<int>(message.size()),
               message.data(), command.c_str());
  return 2;
}

int Main(std::span<char*> argv) {
  CLI::App app("Runs Mixture-of-Experts models that do not fit into memory.", "moestro");
  app.set_version_flag("--version", "moestro " MOESTRO_VERSION);
  app.require_subcommand(1);
  app.footer("'moestro run' alone tells a story; 'moestro COMMAND --help' explains a command.");
  std::function<int()> action;
  AddRun(app, action);
  AddBench(app, action);
  AddInspect(app, action);
  AddLogits(app, action);
  AddSynth(app, action);
  AddTrace(app, action);
  AddSim(app, action);
  AddProfile(app, action);
  std::vector<std::string> arguments = Arguments(argv);
  std::ranges::reverse(arguments);  // the order in which the parser takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return ReportUsage(app, error);
  }
  return action();
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  moestro::SetUpOpenMp(argv);
  signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write(), see cli/output.h
  return moestro::Main({argv, static_cast<size_t>(argc)});
}
