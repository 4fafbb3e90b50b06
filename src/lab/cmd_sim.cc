// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/terminal.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "decide/layer/lossy_options.h"
#include "decide/slots/policy.h"
#include "engine/option_table.h"
#include "lab/commands.h"
#include "lab/sim_machine.h"
#include "lab/sim_report.h"
#include "learned/beside_model.h"
#include "learned/learned_tables.h"
#include "learned/tunings.h"
#include "sim/replay.h"
#include "sim/tune.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

// Candidates of one search, an estimate for the bar's end.
constexpr size_t kUsualCandidates = 100;

struct SimOptions {
  std::string trace;
  std::vector<SlotCount> slots;  // empty: not given
  bool recorded_slots = false;   // take the slots of the engine that recorded
  PolicyChoice policy;
  std::string policy_file;
  bool sweep = false;
  OutputPath plot;   // where a drawing of the sweep goes
  std::string tune;  // a policy or "all"; empty: no tuning
  double train = 50.0;
  OutputPath output;  // where the tuning goes
  bool json = false;
  uint64_t expert_bytes = 0;
  uint64_t bandwidth = 0;
  double compute_ms = 0.0;
  double held_out = 0.0;
  EngineOptions engine;              // its lossy and little options are used
  std::vector<SlotCount> low_slots;  // one; empty: no low copies
  uint64_t low_bytes = 0;
  std::string norms;
  SimPredictor predictor;
  SimLanes lanes;
};

// "belady" replays too, although no engine can run it.
Result<PolicyChoice> ParseSimPolicy(const std::string& text) {
  if (text == "belady") return PolicyChoice{.name = text};
  if (text == "auto") {
    return Fail(
        Errc::kUsage,
        "'auto' looks beside a model, and a trace has none; name a policy, or the file with "
        "--policy-file");
  }
  return ParsePolicyChoice(text);
}

// The policies of a sweep. Belady's rule is added only where it can read the requests ahead: not
// with little passes or devices.
std::vector<PolicyChoice> SweptPolicies(const SimOptions& options) {
  std::vector<PolicyChoice> policies;
  for (const PolicyInfo& known : KnownPolicies()) {
    policies.push_back({.name = std::string(known.name)});
  }
  const bool knows = !options.engine.little.is_on() && options.lanes.machine.empty();
  if (knows) policies.push_back({.name = "belady"});
  return policies;
}

// Options of low copies and of experts that may be left out.
Result<ReplayOptions> LossyPart(const SimOptions& options, const Trace& trace) {
  ReplayOptions replay{.lossy = options.engine.lossy, .low_bytes = options.low_bytes};
  if (!options.low_slots.empty()) {
    replay.low_slots = options.low_slots.front().of(trace.info().shape().experts());
  }
  if (options.engine.lossy.importance == "score-norm") {
    TRY(replay.norms, ReadNormsFor(trace.info().model, options.norms));
  }
  return replay;
}

// Number of first tokens that are not counted.
size_t WarmUp(const SimOptions& options, const Trace& trace) {
  return options.held_out > 0.0 ? TrainingTokens(trace, 100.0 - options.held_out) : 0;
}

// Costs by the flags, else those of the trace. A machine's file and --bandwidth go before both.
MachineCosts CostsOf(const SimOptions& options, const TraceInfo& info) {
  const bool is_given = options.bandwidth > 0 || options.compute_ms > 0.0;
  if (!is_given || !options.lanes.machine.empty()) {
    return info.costs.value_or(MachineCosts());
  }
  MachineCosts costs;
  costs.compute = options.compute_ms / 1e3;
  costs.bandwidth = static_cast<double>(options.bandwidth);
  return costs;
}

// Slots of each pool in the engine that recorded; empty: the trace does not have them.
std::vector<uint64_t> RecordedSlots(const TraceInfo& info) {
  std::vector<uint64_t> slots;
  for (const ExpertPools::Pool& pool : info.pools.pools) {
    if (pool.slots > 0) slots.push_back(pool.slots);
  }
  if (slots.size() < info.pools.pools.size()) slots.clear();
  return slots;
}

// Options of a replay with these flags, on the machine if one is given.
Result<ReplayOptions> ReplayOf(const SimOptions& options, const Trace& trace,
                               const std::optional<SimMachine>& machine) {
  TRY(ReplayOptions replay, LossyPart(options, trace));
  TRY(replay.predictor, ChoosePredictor(options.predictor, trace.info()));
  if (options.recorded_slots) replay.pool_slots = RecordedSlots(trace.info());
  replay.expert_bytes = options.expert_bytes;
  replay.costs = CostsOf(options, trace.info());
  if (machine) replay.lanes = machine->lanes;
  replay.depth = options.predictor.prefetch.value_or(0);
  replay.fetches = options.predictor.prefetch != 0U;
  replay.little = options.engine.little;
  replay.count_from = WarmUp(options, trace);
  return replay;
}

std::vector<uint64_t> SlotsOf(const SimOptions& options, const Trace& trace) {
  std::vector<uint64_t> slots;
  for (const SlotCount& count : options.slots) {
    slots.push_back(count.of(trace.info().shape().experts()));
  }
  return slots;
}

Result<std::vector<SweepLine>> Measure(const SimOptions& options, const Trace& trace,
                                       const std::optional<SimMachine>& machine) {
  Sweep sweep{.policies = options.sweep ? SweptPolicies(options) : std::vector{options.policy},
              .slots = SlotsOf(options, trace),
              .rows = options.lanes.rows};
  TRY(sweep.options, ReplayOf(options, trace, machine));
  if (machine) {
    sweep.device_slots = machine->device_slots;
    sweep.modes = machine->modes;
  }
  if (options.policy_file.empty()) return ReplayAll(trace, sweep);
  // The tuning's choice for each size.
  TRY(const PolicyTuning tuning, ReadTuning(options.policy_file));
  TRY_STATUS(CheckMadeFor(trace.info().model, tuning.model, options.policy_file,
                          "tune on a trace of this model"));
  std::vector<SweepLine> lines;
  for (const uint64_t slots : SlotsOf(options, trace)) {
    sweep.slots = {slots};
    sweep.policies = {ChoiceFor(tuning, std::max<uint64_t>(slots, 1))};
    TRY(std::vector<SweepLine> its, ReplayAll(trace, sweep));
    lines.append_range(std::move(its));
  }
  return lines;
}

// Sets the machine to tune for. A policy is tuned for one machine.
Status TuneOn(const SimMachine& machine, const SimOptions& options, ReplayOptions& replay) {
  const SimLanes& lanes = options.lanes;
  if (machine.device_slots.size() > 1 || lanes.rows.size() > 1 || lanes.modes.size() > 1) {
    return Fail(Errc::kUsage, "--tune takes one --place, one --vram and one --rows");
  }
  replay.lanes = machine.lanes;
  replay.lanes->mode = lanes.modes.empty() ? PlaceMode::kAuto : lanes.modes.front();
  replay.lanes->device_slots.assign(machine.names.devices.size(), machine.device_slots.front());
  replay.step.rows = lanes.rows.front();
  replay.expert_bytes = options.expert_bytes;
  return {};
}

Status RunTune(const SimOptions& options, const Trace& trace,
               const std::optional<SimMachine>& machine) {
  TuneRequest request{
      .policy = options.tune, .slots = SlotsOf(options, trace), .train_percent = options.train};
  TRY(request.lossy, LossyPart(options, trace));
  if (machine) TRY_STATUS(TuneOn(*machine, options, request.lossy));
  ProgressBar bar(ProgressBar::Stderr());
  TRY(const std::vector<TunedAtSize> sizes,
      TuneSizes(trace, request, [&bar](const std::string& what, size_t tried) {
        bar.Update(what, tried, std::max(kUsualCandidates, tried + 1));
      }));
  bar.Clear();
  if (!options.output.empty()) {
    TRY_STATUS(WriteTuning(options.output, ToTuning(trace.info(), sizes)));
  }
  return Output(STDOUT_FILENO).Write(options.json ? TuningAsJson(sizes) : DescribeTuning(sizes));
}

// nullopt: no machine is named.
Result<std::optional<SimMachine>> MachineOf(const SimOptions& options, const Trace& trace) {
  if (options.lanes.machine.empty()) return std::optional<SimMachine>();
  if (options.compute_ms > 0.0) {
    return Fail(Errc::kUsage,
                "--compute is of a machine without lanes; what {} says of its lanes is what "
                "computing takes there",
                options.lanes.machine);
  }
  const size_t known =
      options.tune.empty() ? WarmUp(options, trace) : TrainingTokens(trace, options.train);
  TRY(SimMachine machine, ReadMachine(options.lanes, trace,
                                      {.paths = options.predictor.paths,
                                       .warm_up = known,
                                       .bandwidth = options.bandwidth,
                                       .expert_bytes = options.expert_bytes}));
  return std::optional(std::move(machine));
}

Status Run(SimOptions& options) {
  if (options.slots.empty()) {
    options.slots = {{.percent = 25.0}};
    if (!options.tune.empty()) {
      options.slots = {{.percent = 6.25}, {.percent = 12.5}, {.percent = 25.0}, {.percent = 50.0}};
    }
  }
  TRY(const Trace trace, ReadTrace(options.trace));
  if (options.recorded_slots) {
    if (options.expert_bytes > 0) {
      return Fail(Errc::kUsage,
                  "--recorded-slots are of the recorded sizes; leave out one of it "
                  "and --expert-bytes");
    }
    const std::vector<uint64_t> slots = RecordedSlots(trace.info());
    if (slots.empty()) {
      return Fail(Errc::kUsage,
                  "{} does not say how many slots there were; record it again, or give --slots",
                  options.trace);
    }
    options.slots = {{.slots = std::accumulate(slots.begin(), slots.end(), uint64_t{0})}};
  }
  TRY(const std::optional<SimMachine> machine, MachineOf(options, trace));
  if (!options.tune.empty()) return RunTune(options, trace, machine);
  TRY(const std::vector<SweepLine> lines, Measure(options, trace, machine));
  if (!options.plot.empty()) {
    const std::string title = std::filesystem::path(options.trace).stem().string();
    TRY_STATUS(WriteFile(options.plot, SweepPlot(title, lines)));
  }
  std::optional<LanesMachine> names;
  if (machine) names = machine->names;
  return Output(STDOUT_FILENO)
      .Write(options.json    ? LinesAsJson(lines, names)
             : options.sweep ? LinesAsCsv(lines)
                             : DescribeLines(lines, names));
}

void AddClockFlags(Flags sim, const std::shared_ptr<SimOptions>& options) {
  sim.AddParsed(
      "--bandwidth", "SIZE",
      "bytes per second of the pretend disk, for example 2G; with --compute gives tok/s "
      "(default: what --machine says, else the trace, if 'moestro bench --record' made it)",
      [options](const std::string& text) -> Status {
        TRY(options->bandwidth, ParseBytes(text));
        return {};
      });
  sim.Add("--compute", options->compute_ms,
          "milliseconds of one token with all experts resident, without --machine")
      .NonNegative();
  sim.AddParsed("--expert-bytes", "SIZE", "of one expert (default: as the trace says)",
                [options](const std::string& text) -> Status {
                  TRY(options->expert_bytes, ParseBytes(text));
                  return {};
                });
}

// Adds the engine's flags of policies, with the simulator's defaults.
void AddPolicyFlags(Flags sim, const std::shared_ptr<SimOptions>& options) {
  OptionRow policy = FindOption("policy");
  policy.usual = options->policy.name;
  sim.AddParsed(std::string(policy.flag), std::string(policy.value), HelpOf(policy),
                [options](const std::string& text) -> Status {
                  TRY(options->policy, ParseSimPolicy(text));
                  return {};
                });
  const OptionRow& file = FindOption("policy-file");
  sim.Add(std::string(file.flag), options->policy_file, HelpOf(file))
      .Type(std::string(file.value))
      .Excludes("--policy");
}

void AddLowFlags(Flags sim, const std::shared_ptr<SimOptions>& options) {
  const Flag bytes =
      sim.AddParsed("--low-bytes", "SIZE", "of one low copy; without it there are none",
                    [options](const std::string& text) -> Status {
                      TRY(options->low_bytes, ParseBytes(text));
                      return {};
                    });
  const Flag slots = sim.AddParsed("--low-slots", "N|PERCENT%", "low copies that memory holds",
                                   [options](const std::string& text) -> Status {
                                     return ParseSlotCounts(text, options->low_slots);
                                   });
  slots.Needs(bytes);
  bytes.Needs(slots);
  sim.Add("--norms", options->norms, "what 'moestro profile' measured, for --importance score-norm")
      .Type("FILE");
  AddOptionFlags(sim, options->engine, OptionGroup::kLossy);
  AddOptionFlags(sim, options->engine, OptionGroup::kLittle);
}

void AddTuneFlags(Flags sim, const std::shared_ptr<SimOptions>& options) {
  const Flag tune =
      sim.AddParsed("--tune", "NAME|all",
                    "search a policy's parameters (all: every policy's, the best wins) on the "
                    "first tokens and report on the rest",
                    [options](const std::string& text) -> Status {
                      TRY(options->tune, ParseTunedPolicy(text));
                      return {};
                    });
  for (const char* other : {"--policy", "--policy-file", "--sweep", "--held-out", "--bandwidth",
                            "--compute", "--predictor", "--little"}) {
    tune.Excludes(other);
  }
  sim.Add("--train", options->train, "percentage of the tokens to search on")
      .Between(1.0, 99.0)
      .ShowDefault()
      .Needs(tune);
  sim.AddOutput("-o,--output", options->output,
                "settings for --policy-file; as MODEL.policy.json beside the model they are found "
                "by themselves")
      .Needs(tune);
}

}  // namespace

void AddSim(CommandLine& line) {
  auto options = std::make_shared<SimOptions>();
  Flags sim = line.AddCommand(CommandNamed("sim"), [options] { return ExitCode(Run(*options)); });
  sim.Footer(
      "Runs the engine's own decisions on recorded routing. --policy belady knows the future: the "
      "limit.\nExamples: moestro sim olmoe.trace --sweep --slots 6.25%,12.5%,25%,50% --plot "
      "olmoe.svg\n"
      "          moestro sim olmoe.trace --tune all -o olmoe.gguf.policy.json\n"
      "          moestro sim olmoe.trace --machine bench/machines/rtx-4090-pcie4.json --place all "
      "--preload");
  sim.Add("TRACE", options->trace, "file made by 'moestro trace'").Required();
  sim.AddParsed("--slots", "N|PERCENT%,...",
                "experts that memory holds (default: 25%, to tune for 6.25%,12.5%,25%,50%)",
                [options](const std::string& text) -> Status {
                  return ParseSlotCounts(text, options->slots);
                });
  sim.AddSwitch("--recorded-slots", options->recorded_slots,
                "as many in each pool as the engine had that recorded the trace")
      .Excludes("--slots");
  AddPolicyFlags(sim, options);
  const Flag sweep =
      sim.AddSwitch("--sweep", options->sweep, "every policy and Belady's limit, as CSV")
          .Excludes("--policy")
          .Excludes("--policy-file");
  sim.AddOutput("--plot", options->plot, "draw the sweep, too: an SVG").Needs(sweep);
  sim.Add("--held-out", options->held_out,
          "count only this last percentage of the tokens; what is before warms up")
      .Between(0.0, 99.0);
  AddPredictorFlags(sim, options->predictor);
  AddClockFlags(sim, options);
  AddLowFlags(sim, options);
  AddTuneFlags(sim, options);
  sim.AddSwitch("--json", options->json, "a JSON array");
  AddLaneFlags(sim, options->lanes);
}

}  // namespace moestro
