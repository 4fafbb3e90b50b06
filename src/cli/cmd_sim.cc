// SPDX-License-Identifier: MIT
#include "cli/cmd_sim.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <format>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "cli/common_flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "decide/policy.h"
#include "decide/predictor.h"
#include "sim/replay.h"
#include "trace/path_file.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

// A number of slots, or a share of all experts.
struct SlotCount {
  uint64_t slots = 0;
  double percent = 0.0;  // used when slots == 0

  uint64_t of(uint64_t experts) const {
    if (slots > 0) return std::min(slots, experts);
    return static_cast<uint64_t>(std::llround(percent / 100.0 * static_cast<double>(experts)));
  }
};

struct SimOptions {
  std::string trace;
  std::vector<SlotCount> slots = {{.percent = 25.0}};
  PolicyChoice policy;
  bool sweep = false;
  bool json = false;
  uint64_t expert_bytes = 0;
  uint64_t bandwidth = 0;
  double compute_ms = 0.0;
  double held_out = 0.0;
  std::string predictor = "none";
  std::string paths;                 // for "paths"
  std::optional<uint32_t> prefetch;  // 0: predictions inform the policy only
};

Result<SlotCount> ParseSlotCount(std::string_view text) {
  const bool is_percent = text.ends_with('%');
  const std::string_view digits = is_percent ? text.substr(0, text.size() - 1) : text;
  double value = 0.0;
  const auto [stop, error] = std::from_chars(digits.begin(), digits.end(), value);
  const bool is_number = error == std::errc{} && stop == digits.end() && !digits.empty();
  if (!is_number || !(value > 0.0) || (is_percent ? value > 100.0 : value > 1e9)) {
    return Fail(Errc::kUsage, "'{}' is no number of slots; write 512 or 12.5%", text);
  }
  if (is_percent) return SlotCount{.percent = value};
  if (value != std::floor(value)) return Fail(Errc::kUsage, "'{}' is not a whole number", text);
  return SlotCount{.slots = static_cast<uint64_t>(value)};
}

Status ParseSlotCounts(std::string_view text, std::vector<SlotCount>& counts) {
  counts.clear();
  while (true) {
    const size_t comma = text.find(',');
    TRY(const SlotCount count, ParseSlotCount(text.substr(0, comma)));
    counts.push_back(count);
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
  }
}

// "belady" replays too, although no engine can run it.
Result<PolicyChoice> ParseSimPolicy(const std::string& text) {
  if (text == "belady") return PolicyChoice{.name = text};
  return ParsePolicyChoice(text);
}

struct Line {
  std::string policy;
  uint64_t slots = 0;
  double percent = 0.0;
  ReplayResult result;
};

Result<PredictorChoice> ChoosePredictor(const SimOptions& options, const TraceInfo& info) {
  PredictorChoice choice{.name = options.predictor};
  if (choice.name != "paths") return choice;
  if (options.paths.empty()) {
    return Fail(Errc::kUsage, "--predictor paths needs --paths FILE, made by 'moestro profile'");
  }
  TRY(PathFile paths, ReadPaths(options.paths));
  TRY_STATUS(CheckPathsFit(
      paths, options.paths,
      {.name = info.model,
       .id = info.model_id,
       .shape = {.layers = info.n_layer, .experts = info.n_expert, .used = info.n_used}}));
  choice.paths = std::make_shared<const PathTable>(std::move(paths.table));
  return choice;
}

Result<std::vector<Line>> Measure(const SimOptions& options, const Trace& trace) {
  const TraceInfo& info = trace.info();
  const uint64_t experts = uint64_t{info.n_layer} * info.n_expert;
  std::vector<PolicyChoice> policies = {options.policy};
  if (options.sweep) {
    policies.clear();
    for (const PolicyInfo& known : KnownPolicies()) {
      policies.push_back({.name = std::string(known.name)});
    }
    policies.push_back({.name = "belady"});
  }
  const auto tokens = static_cast<double>(trace.tokens());
  TRY(const PredictorChoice predictor, ChoosePredictor(options, info));
  std::vector<Line> lines;
  for (const PolicyChoice& policy : policies) {
    for (const SlotCount& count : options.slots) {
      const uint64_t slots = count.of(experts);
      TRY(const ReplayResult result,
          Replay(trace,
                 {.slots = slots,
                  .policy = policy,
                  .expert_bytes = options.expert_bytes,
                  .bandwidth = static_cast<double>(options.bandwidth),
                  .compute_seconds = options.compute_ms / 1e3,
                  .predictor = predictor,
                  .depth = options.prefetch.value_or(0),
                  .fetches = options.prefetch != 0U,
                  .count_from = static_cast<size_t>(tokens * (1.0 - options.held_out / 100.0)) *
                                (options.held_out > 0.0 ? 1U : 0U)}));
      lines.push_back({.policy = policy.name,
                       .slots = slots,
                       .percent = 100.0 * static_cast<double>(slots) / static_cast<double>(experts),
                       .result = result});
    }
  }
  return lines;
}

std::string Csv(const std::vector<Line>& lines) {
  std::string text =
      "policy,slots,percent,tokens,requests,hits,misses,evictions,hit_rate,bytes,seconds,"
      "stall_seconds,tokens_per_second\n";
  for (const Line& line : lines) {
    const ReplayResult& r = line.result;
    text +=
        std::format("{},{},{:.4g},{},{},{},{},{},{:.6f},{},{:.6f},{:.6f},{:.4f}\n", line.policy,
                    line.slots, line.percent, r.tokens, r.requests, r.hits, r.misses, r.evictions,
                    r.hit_rate(), r.bytes, r.seconds, r.stall_seconds, r.tokens_per_second());
  }
  return text;
}

std::string Describe(const Line& line) {
  const ReplayResult& r = line.result;
  std::string text = std::format(
      "{:10} {:6} slots ({:.4g} %)  {:6.2f} % hits, {} misses, {} evictions", line.policy,
      line.slots, line.percent, 100.0 * r.hit_rate(), r.misses, r.evictions);
  if (r.guesses > 0) {
    text += std::format(", {} guesses, {} good, {} late", r.guesses, r.good_guesses, r.late);
  }
  if (r.bytes > 0) text += ", " + FormatBytes(r.bytes) + " read";
  if (r.seconds > 0.0) {
    text += std::format(", {:.2f} tok/s, {:.1f} % of the time waiting, {:.1f} % of the bound",
                        r.tokens_per_second(), 100.0 * r.stall_seconds / r.seconds,
                        100.0 * r.bound_seconds / r.seconds);
  }
  return text + "\n";
}

std::string AsJson(const std::vector<Line>& lines) {
  Json array = Json::Array();
  for (const Line& line : lines) {
    const ReplayResult& r = line.result;
    Json object = Json::Object();
    object.Set("policy", line.policy)
        .Set("slots", line.slots)
        .Set("tokens", r.tokens)
        .Set("requests", r.requests)
        .Set("hits", r.hits)
        .Set("misses", r.misses)
        .Set("evictions", r.evictions)
        .Set("hit_rate", r.hit_rate())
        .Set("disk_bytes", r.bytes)
        .Set("seconds", r.seconds)
        .Set("stall_seconds", r.stall_seconds)
        .Set("decode_tps", r.tokens_per_second());
    array.Push(std::move(object));
  }
  return array.Dump() + "\n";
}

Status Run(const SimOptions& options) {
  TRY(const Trace trace, ReadTrace(options.trace));
  TRY(const std::vector<Line> lines, Measure(options, trace));
  std::string text;
  if (options.json) {
    text = AsJson(lines);
  } else if (options.sweep) {
    text = Csv(lines);
  } else {
    for (const Line& line : lines) text += Describe(line);
  }
  return Output(STDOUT_FILENO).Write(text);
}

void AddClockFlags(CLI::App& sim, const std::shared_ptr<SimOptions>& options) {
  AddParsedFlag(sim, "--bandwidth", "SIZE",
                "bytes per second of the pretend disk, for example 2G; with --compute gives tok/s",
                [options](const std::string& text) -> Status {
                  TRY(options->bandwidth, ParseBytes(text));
                  return {};
                });
  sim.add_option("--compute", options->compute_ms,
                 "milliseconds of one token with all experts resident")
      ->check(CLI::NonNegativeNumber);
  AddParsedFlag(sim, "--expert-bytes", "SIZE", "of one expert (default: as the trace says)",
                [options](const std::string& text) -> Status {
                  TRY(options->expert_bytes, ParseBytes(text));
                  return {};
                });
}

}  // namespace

CLI::App* AddSim(CLI::App& app, std::function<int()>& action) {
  auto options = std::make_shared<SimOptions>();
  CLI::App* sim = app.add_subcommand("sim", "replay a trace against policies and cache sizes");
  sim->footer(
      "Runs the engine's own decisions on recorded routing. --policy belady knows the future: the "
      "limit.\nExample: moestro sim olmoe.trace --sweep --slots 6.25%,12.5%,25%,50%");
  sim->add_option("TRACE", options->trace, "file made by 'moestro trace'")->required();
  AddParsedFlag(*sim, "--slots", "N|PERCENT%,...", "experts that memory holds (default: 25%)",
                [options](const std::string& text) -> Status {
                  return ParseSlotCounts(text, options->slots);
                });
  AddParsedFlag(*sim, "--policy", "NAME[:KEY=VALUE,...]", PolicyHelp(),
                [options](const std::string& text) -> Status {
                  TRY(options->policy, ParseSimPolicy(text));
                  return {};
                });
  sim->add_flag("--sweep", options->sweep, "every policy and Belady's limit, as CSV");
  sim->add_option("--held-out", options->held_out,
                  "count only this last percentage of the tokens; what is before warms up")
      ->check(CLI::Range(0.0, 99.0));
  AddParsedFlag(*sim, "--predictor", "NAME", PredictorHelp("none"),
                [options](const std::string& text) -> Status {
                  if (text != "oracle") TRY_STATUS(CheckPredictorName(text));
                  options->predictor = text;
                  return {};
                });
  sim->add_option("--paths", options->paths, "what 'moestro profile' learned")->type_name("FILE");
  sim->add_option("--prefetch", options->prefetch,
                  "layers looked ahead; 0: predictions only inform the policy (default: as many as "
                  "the trace predicts)")
      ->type_name("N")
      ->check(CLI::Range(0U, 8U));
  AddClockFlags(*sim, options);
  sim->add_flag("--json", options->json, "a JSON array");
  sim->callback([options, &action] { action = [options] { return ExitCode(Run(*options)); }; });
  return sim;
}

}  // namespace moestro
