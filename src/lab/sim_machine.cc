// SPDX-License-Identifier: MIT
#include "lab/sim_machine.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>

#include "base/number.h"
#include "decide/ahead/path_table.h"
#include "decide/slots/first_experts.h"
#include "engine/option_table.h"
#include "learned/learned_tables.h"
#include "learned/machine_files.h"

namespace moestro {
namespace {

Result<SlotCount> ParseSlotCount(std::string_view text) {
  const bool is_percent = text.ends_with('%');
  const std::string_view digits = is_percent ? text.substr(0, text.size() - 1) : text;
  const double value = ParseNumber<double>(digits).value_or(0.0);
  if (!(value > 0.0) || (is_percent ? value > 100.0 : value > 1e9)) {
    return Fail(Errc::kUsage, "'{}' is no number of slots; write 512 or 12.5%", text);
  }
  if (is_percent) return SlotCount{.percent = value};
  if (value != std::floor(value)) return Fail(Errc::kUsage, "'{}' is not a whole number", text);
  return SlotCount{.slots = static_cast<uint64_t>(value)};
}

}  // namespace

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

void AddPredictorFlags(Flags sim, SimPredictor& predictor) {
  OptionRow row = FindOption("predictor");
  row.usual = "none";
  row.known += "\noracle: always right, the limit";
  sim.AddParsed(std::string(row.flag), std::string(row.value), HelpOf(row),
                [&predictor](const std::string& text) -> Status {
                  if (text != "oracle") TRY_STATUS(CheckPredictorName(text));
                  predictor.name = text;
                  return {};
                });
  sim.Add("--paths", predictor.paths, "what 'moestro profile' learned, for 'paths' and --first")
      .Type("FILE");
  sim.Add("--prefetch", predictor.prefetch,
          "layers looked ahead; 0: predictions only inform the policy (default: as many as "
          "the trace predicts)")
      .Type("N")
      .Between(0U, 8U);
}

Result<PredictorChoice> ChoosePredictor(const SimPredictor& predictor, const TraceInfo& info) {
  PredictorChoice choice{.name = predictor.name};
  if (choice.name != "paths") return choice;
  if (predictor.paths.empty()) {
    return Fail(Errc::kUsage, "--predictor paths needs --paths FILE, made by 'moestro profile'");
  }
  TRY(choice.paths, ReadPathsFor(info.model, predictor.paths));
  return choice;
}

namespace {

constexpr uint32_t kMostRows = 4096;

Status ParseModes(const std::string& text, std::vector<PlaceMode>& modes) {
  if (text == "all") {
    modes = {PlaceMode::kAuto, PlaceMode::kGpuCentric, PlaceMode::kCooperative, PlaceMode::kCpu};
    return {};
  }
  TRY(const PlaceMode mode, ParsePlaceMode(text));
  modes = {mode};
  return {};
}

Status ParseRows(std::string_view text, std::vector<uint32_t>& rows) {
  rows.clear();
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const uint32_t value = ParseNumber<uint32_t>(part).value_or(0);
    if (value == 0 || value > kMostRows) {
      return Fail(Errc::kUsage, "'{}' rows: a step has 1 to {}", part, kMostRows);
    }
    rows.push_back(value);
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
  }
}

// Chooses the experts that devices get at the start, in their order, with their popularity.
Status ChooseFirst(const SimLanes& lanes, const Trace& trace, const SimShared& shared,
                   LaneMachine& machine) {
  const MoeShape& shape = trace.info().shape();
  if (lanes.first == "layers") machine.first = ByLayer(shape);
  if (lanes.first == "layers" || lanes.first == "none") return {};
  std::vector<uint64_t> counts;
  if (!shared.paths.empty()) {
    TRY(const std::shared_ptr<const PathTable> paths,
        ReadPathsFor(trace.info().model, shared.paths));
    counts = PopularityOf(*paths);
  } else if (shared.warm_up > 0) {
    counts = RequestsIn(trace, shared.warm_up);
  } else {
    return {};
  }
  machine.first = MostFirst(shape, counts);
  machine.popularity.assign(counts.begin(), counts.end());
  return {};
}

Result<std::vector<SlotCount>> DeviceSizes(const SimLanes& lanes, const LatencyFile& machine) {
  if (machine.devices.empty() && lanes.vram.empty()) return std::vector<SlotCount>(1);
  if (machine.devices.empty()) {
    return Fail(Errc::kUsage, "--vram: '{}' in {} has no device", machine.machine, lanes.machine);
  }
  return lanes.vram.empty() ? std::vector<SlotCount>{{.percent = 25.0}} : lanes.vram;
}

}  // namespace

void AddLaneFlags(Flags sim, SimLanes& lanes) {
  sim.Group("A machine with devices");
  const Flag machine =
      sim.Add("--machine", lanes.machine,
              "what its lanes cost (docs/devices.md; bench/machines has some): experts then lie in "
              "device slots, memory and on the disk, and run where a layer is done first")
          .Type("FILE");
  sim.AddParsed("--place", "MODE|all",
                "auto, gpu-centric (copies what devices lack), cooperative (the CPU computes "
                "that), cpu",
                [&lanes](const std::string& text) { return ParseModes(text, lanes.modes); })
      .Needs(machine);
  sim.AddParsed("--tiers", "auto|inclusive|exclusive",
                "whether memory keeps experts that have come to a device (default: auto, if it has "
                "room for more than half of all)",
                [&lanes](const std::string& text) -> Status {
                  TRY(lanes.tiers, ParseTiersAsked(text));
                  return {};
                })
      .Needs(machine);
  sim.AddParsed("--vram", "N|PERCENT%,...", "experts that each device holds (default: 25%)",
                [&lanes](const std::string& text) { return ParseSlotCounts(text, lanes.vram); })
      .Needs(machine);
  sim.AddParsed("--rows", "N,...",
                "consecutive decode tokens that make one step, where each was recorded alone "
                "(default: 1)",
                [&lanes](const std::string& text) { return ParseRows(text, lanes.rows); })
      .Needs(machine);
  sim.AddParsed("--dense-bytes", "SIZE",
                "weights of a layer beside its experts; the machine's file says what they cost",
                [&lanes](const std::string& text) -> Status {
                  TRY(lanes.dense_bytes, ParseBytes(text));
                  return {};
                })
      .Needs(machine);
  sim.Add("--first", lanes.first,
          "who is on devices at the start; popular: by --paths, else by the tokens before "
          "--held-out, else by the first prompt, as with none; layers: the last layers whole")
      .OneOf({"popular", "layers", "none"})
      .ShowDefault()
      .Needs(machine);
  sim.AddSwitch("--preload", lanes.preload,
                "memory is full at the start, too, the same experts first")
      .Needs(machine);
}

Result<SimMachine> ReadMachine(const SimLanes& lanes, const Trace& trace, const SimShared& shared) {
  TRY(const LatencyFile file, ReadLatency(lanes.machine));
  if (shared.expert_bytes == 0 && trace.info().expert_bytes == 0) {
    return Fail(Errc::kUsage, "the trace does not say how large an expert is; give --expert-bytes");
  }
  SimMachine machine;
  machine.lanes.model = file.model;
  machine.lanes.dense = file.dense;
  machine.lanes.dense_bytes = lanes.dense_bytes;
  machine.lanes.tiers = lanes.tiers;
  machine.lanes.is_settled = file.is_remote;
  machine.lanes.fills_memory = lanes.preload;
  machine.modes = lanes.modes;
  const bool has_remotes = std::ranges::contains(file.is_remote, true);
  if (machine.modes.empty()) machine.modes = {PlaceMode::kAuto};
  if (lanes.modes.empty() && has_remotes) machine.modes.push_back(PlaceMode::kCpu);
  if (shared.bandwidth > 0) {
    machine.lanes.model.disk = {.per_byte = 1.0 / static_cast<double>(shared.bandwidth)};
  }
  const uint64_t experts = trace.info().shape().experts();
  TRY(const std::vector<SlotCount> sizes, DeviceSizes(lanes, file));
  for (const SlotCount& size : sizes) machine.device_slots.push_back(size.of(experts));
  TRY_STATUS(ChooseFirst(lanes, trace, shared, machine.lanes));
  machine.names = {.name = file.machine,
                   .devices = file.devices,
                   .experts = experts,
                   .has_remotes = has_remotes};
  return machine;
}

}  // namespace moestro
