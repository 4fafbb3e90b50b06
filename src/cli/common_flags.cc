// SPDX-License-Identifier: MIT
#include "cli/common_flags.h"

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "decide/policy.h"
#include "decide/predictor.h"
#include "store/block_reader.h"

namespace moestro {

CLI::Option* AddParsedFlag(CLI::App& app, const std::string& names, const std::string& type,
                           const std::string& help,
                           std::function<Status(const std::string&)> parse) {
  return app
      .add_option_function<std::string>(
          names,
          [parse = std::move(parse), names](const std::string& text) {
            const Status status = parse(text);
            if (!status) throw CLI::ValidationError(names, status.error().message);
          },
          help)
      ->type_name(type);
}

namespace {

// Names, ideas and parameters of all policies.
std::string PolicyHelp(const std::string& standard) {
  std::string help = Format("which expert leaves when a slot is needed (default: {}):", standard);
  for (const PolicyInfo& policy : KnownPolicies()) {
    help += Format("\n{}: {}", policy.name, policy.summary);
    for (const PolicyParameter& p : policy.parameters) {
      help += Format("{}{}={}", &p == policy.parameters.data() ? "; " : ", ", p.name, p.standard);
    }
  }
  return help;
}

}  // namespace

std::string PredictorHelp(std::string_view standard) {
  std::string help =
      Format("what guesses which experts the next layers need (default: {}):", standard);
  for (const PredictorInfo& predictor : KnownPredictors()) {
    help += Format("\n{}: {}", predictor.name, predictor.summary);
  }
  return help;
}

void AddPolicyFlags(CLI::App& app, const std::string& standard,
                    std::function<Status(const std::string&)> parse, std::string& policy_file) {
  CLI::Option* policy =
      AddParsedFlag(app, "--policy", "NAME[:KEY=VALUE,...]", PolicyHelp(standard),
                    [parse = std::move(parse)](const std::string& text) { return parse(text); });
  app.add_option("--policy-file", policy_file,
                 "policies tuned for this model by 'moestro sim --tune ... -o FILE'")
      ->type_name("FILE")
      ->excludes(policy);
}

void AddCommonFlags(CLI::App& app, CommonOptions& options) {
  EngineOptions& engine = options.engine;
  app.option_defaults()->group("Memory, disk and threads");
  AddParsedFlag(app, "--ram", "SIZE",
                "peak memory of the whole process, for example 6G (default: what is free, cgroup "
                "limits respected, less a margin)",
                [&engine](const std::string& text) -> Status {
                  TRY(engine.ram_bytes, ParseBytes(text));
                  if (engine.ram_bytes > 0) return {};
                  return Fail(Errc::kUsage, "a budget of 0 bytes holds nothing");
                });
  AddParsedFlag(app, "--cache", "SIZE|PERCENT%",
                "memory for experts alone, for example 2G or 25% of all experts",
                [&engine](const std::string& text) -> Status {
                  TRY(engine.cache, ParseCacheSize(text));
                  return {};
                });
  app.add_option("-t,--threads", engine.threads, "compute threads (default: physical cores)")
      ->type_name("N");
  app.add_option("-c,--ctx,--ctx-size", engine.ctx,
                 "tokens of context, at most what the model was trained with")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--chunk", engine.chunk, "most prompt tokens evaluated at once")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddParsedFlag(app, "--reader", "uring|pread|auto", "how experts are read (default: auto)",
                [&engine](const std::string& text) -> Status {
                  TRY([[maybe_unused]] const ReaderKind kind, ParseReaderKind(text));
                  engine.reader = text;
                  return {};
                });
  AddPolicyFlags(
      app, Format("auto, the file MODEL.policy.json if there is one, else {}", PolicyChoice{}.name),
      [&engine](const std::string& text) -> Status {
        engine.policy.reset();
        if (text == "auto") return {};
        TRY(engine.policy, ParsePolicyChoice(text));
        return {};
      },
      engine.policy_file);
  AddParsedFlag(app, "--predictor", "NAME", PredictorHelp(options.engine.predictor),
                [&engine](const std::string& text) -> Status {
                  TRY_STATUS(CheckPredictorName(text));
                  engine.predictor = text;
                  return {};
                });
  app.add_option("--paths", engine.paths,
                 "what 'moestro profile' learned, for --predictor paths (default: MODEL.paths)")
      ->type_name("FILE");
  app.add_option("--prefetch", engine.prefetch, "layers looked ahead; 0: no prefetch")
      ->type_name("N")
      ->check(CLI::Range(0U, 8U))
      ->capture_default_str();
  AddParsedFlag(
      app, "-s,--seed", "N", "seed of all random choices; the same seed gives the same output",
      [&options](const std::string& text) -> Status {
        int64_t value = 0;
        if (!CLI::detail::lexical_cast(text, value) || value < -1 || value > UINT32_MAX) {
          return Fail(Errc::kUsage, "'{}' is not a seed; write 0 to {}, or -1 for a random one",
                      text, UINT32_MAX);
        }
        if (value >= 0) options.seed = static_cast<uint32_t>(value);
        return {};
      });
  app.option_defaults()->group("Output");
  app.add_flag("--json", options.json, "machine-readable output: one JSON object");
  app.add_flag("-v,--verbose", options.verbose, "say more on standard error");
}

}  // namespace moestro
