// SPDX-License-Identifier: MIT
#include "cli/common_flags.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/cache_folder.h"
#include "base/format.h"
#include "cli/device_flags.h"
#include "cli/lossy_flags.h"
#include "decide/ahead/predictor.h"
#include "decide/slots/policy.h"
#include "engine/knobs.h"
#include "store/block_reader.h"

namespace moestro {

namespace {

// Names, ideas and parameters of all policies.
std::string PolicyHelp(const std::string& default_text) {
  std::string help =
      Format("which expert leaves when a slot is needed (default: {}):", default_text);
  for (const PolicyInfo& policy : KnownPolicies()) {
    help += Format("\n{}: {}", policy.name, policy.summary);
    for (const PolicyParameter& p : policy.parameters) {
      help +=
          Format("{}{}={}", &p == policy.parameters.data() ? "; " : ", ", p.name, p.default_value);
    }
  }
  return help;
}

// 0: auto; nullopt: neither that nor a number from 1 to `most`.
std::optional<uint32_t> NumberOrAuto(const std::string& text, uint32_t most) {
  if (text == "auto") return 0;
  uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && stop == end && value > 0 && value <= most) return value;
  return std::nullopt;
}

Result<uint32_t> ParseChunk(const std::string& text) {
  if (const auto chunk = NumberOrAuto(text, UINT32_MAX)) return *chunk;
  return Fail(Errc::kUsage, "'{}' is not a number of tokens; write auto, or 1 or more", text);
}

Result<uint32_t> ParseDepth(const std::string& text) {
  if (const auto depth = NumberOrAuto(text, 256)) return *depth;
  return Fail(Errc::kUsage, "'{}' is not a number of reads; write auto, or 1 to 256", text);
}

void AddSeedFlag(Flags flags, CommonOptions& options) {
  flags.AddParsed(
      "-s,--seed", "N", "seed of all random choices; the same seed gives the same output",
      [&options](const std::string& text) -> Status {
        int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error != std::errc{} || stop != end || value < -1 || value > UINT32_MAX) {
          return Fail(Errc::kUsage, "'{}' is not a seed; write 0 to {}, or -1 for a random one",
                      text, UINT32_MAX);
        }
        if (value >= 0) options.seed = static_cast<uint32_t>(value);
        return {};
      });
}

}  // namespace

std::string PredictorHelp(std::string_view default_text) {
  std::string help =
      Format("what predicts which experts the next layers need (default: {}):", default_text);
  for (const PredictorInfo& predictor : KnownPredictors()) {
    help += Format("\n{}: {}", predictor.name, predictor.summary);
  }
  return help;
}

void AddPolicyFlags(Flags flags, const std::string& default_text,
                    std::function<Status(const std::string&)> parse, std::string& policy_file) {
  const Flag policy =
      flags.AddParsed("--policy", "NAME[:KEY=VALUE,...]", PolicyHelp(default_text),
                      [parse = std::move(parse)](const std::string& text) { return parse(text); });
  flags
      .Add("--policy-file", policy_file,
           "policies tuned for this model by 'moestro sim --tune ... -o FILE'")
      .Type("FILE")
      .Excludes(policy);
}

Flag AddCommonFlags(Flags flags, CommonOptions& options) {
  EngineOptions& engine = options.engine;
  engine.weights_folder = CacheFolder();
  flags.Group("Memory, disk and threads");
  flags.AddParsed("--ram", "SIZE",
                  "peak memory of the whole process, for example 6G (default: what is free, cgroup "
                  "limits respected, less a margin)",
                  [&engine](const std::string& text) { return SetKnob(engine, "ram", text); });
  flags.AddParsed("--cache", "SIZE|PERCENT%",
                  "memory for experts alone, for example 2G or 25% of all experts",
                  [&engine](const std::string& text) { return SetKnob(engine, "cache", text); });
  flags.Add("-t,--threads", engine.threads, "compute threads (default: physical cores)").Type("N");
  const Flag ctx = flags
                       .Add("-c,--ctx,--ctx-size", engine.ctx,
                            "tokens of context, at most what the model was trained with")
                       .Type("N")
                       .ShowDefault();
  flags.AddParsed("--kv-type", "f16|q8_0|f32",
                  "what keys and values are stored as (default: f16); q8_0 takes 53 % of the "
                  "memory and is not quite exact; f32 takes twice as much and rounds nothing",
                  [&engine](const std::string& text) { return SetKnob(engine, "kv-type", text); });
  flags.AddParsed("--chunk", "N|auto",
                  "most prompt tokens evaluated at once (default: auto, 512 to 2048 by the model's "
                  "experts)",
                  [&engine](const std::string& text) -> Status {
                    TRY(engine.chunk, ParseChunk(text));
                    return {};
                  });
  flags.AddParsed("--engine", "auto|native|hosted",
                  "the native engine where it knows the model's family, else libllama's forward "
                  "pass (default: auto)",
                  [&engine](const std::string& text) -> Status {
                    if (text != "auto" && text != "native" && text != "hosted") {
                      return Fail(Errc::kUsage, "'{}' is no engine; write auto, native or hosted",
                                  text);
                    }
                    engine.engine = text;
                    return {};
                  });
  flags.AddParsed("--reader", "uring|pread|auto", "how experts are read (default: auto)",
                  [&engine](const std::string& text) -> Status {
                    TRY([[maybe_unused]] const ReaderKind kind, ParseReaderKind(text));
                    engine.reader = text;
                    return {};
                  });
  flags.AddParsed("--io-depth", "N|auto",
                  "reads of up to 1 MiB that the disk gets at a time, 1 to 256 (default: auto, as "
                  "few of 4 to 32 as fill it when measured, if not all experts fit)",
                  [&engine](const std::string& text) -> Status {
                    TRY(engine.io_depth, ParseDepth(text));
                    return {};
                  });
  AddPolicyFlags(
      flags,
      Format("auto, the file MODEL.policy.json if there is one, else {}", PolicyChoice{}.name),
      [&engine](const std::string& text) { return SetKnob(engine, "policy", text); },
      engine.policy_file);
  flags.AddParsed(
      "--predictor", "NAME", PredictorHelp(options.engine.predictor),
      [&engine](const std::string& text) { return SetKnob(engine, "predictor", text); });
  flags
      .Add("--paths", engine.paths,
           "what 'moestro profile' learned, for --predictor paths and for who is on a device first "
           "(default: MODEL.paths)")
      .Type("FILE");
  flags.Add("--prefetch", engine.prefetch, "layers looked ahead; 0: no prefetch")
      .Type("N")
      .Between(0U, 8U)
      .ShowDefault();
  AddSeedFlag(flags, options);
  AddDeviceFlags(flags, engine.device);
  AddLossyFlags(flags, engine);
  AddLittleFlags(flags, engine.little);
  flags.Group("Output");
  flags.AddSwitch("--json", options.json, "machine-readable output: one JSON object");
  flags.AddSwitch("-v,--verbose", options.verbose, "say more on standard error");
  return ctx;
}

}  // namespace moestro
