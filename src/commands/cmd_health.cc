// SPDX-License-Identifier: MIT
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "serve/readiness.h"

namespace moestro {
namespace {

struct HealthOptions {
  std::string host = "127.0.0.1";
  uint32_t port = 8080;
  double seconds = 5.0;
};

Status Run(const HealthOptions& options) {
  if (options.port == 0) {
    return Fail(
        Errc::kInvalidRequest,
        "port 0 stands for any free one, so nobody knows where the server listens; give the "
        "port that it named: moestro health --port N");
  }
  TRY_STATUS(CheckHealth(options.host, static_cast<uint16_t>(options.port), options.seconds));
  std::puts("ready");
  return {};
}

}  // namespace

void AddHealth(CommandLine& line) {
  auto options = std::make_shared<HealthOptions>();
  Flags health =
      line.AddCommand(CommandNamed("health"), [options] { return ExitCode(Run(*options)); });
  health.Footer(
      "Exit code 0: ready; 1: it loads, ends, or does not answer. --host and --port come from\n"
      "the settings of 'moestro serve' where they are not given.");
  health.Add("--host", options->host, "address that the server listens on").ShowDefault();
  health.Add("--port", options->port, "port that it listens on").Between(0U, 65535U).ShowDefault();
  health.Add("--timeout", options->seconds, "seconds that the answer may take")
      .Between(0.001, 3600.0)
      .ShowDefault();
}

}  // namespace moestro
