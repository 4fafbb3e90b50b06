// SPDX-License-Identifier: MIT
#include "lab/sim_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/report.h"
#include "native/plan/engine_plan.h"
#include "plot/chart.h"

namespace moestro {
namespace {

double Percent(uint64_t part, uint64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

std::string Describe(std::string_view what, const LanePhase& p,
                     const std::vector<std::string>& devices) {
  if (p.tokens == 0) return {};
  std::string text = Format(
      "  {:8} {:.2f} tok/s; experts {:.1f} % on devices, {:.1f} % in memory, {:.1f} % on the "
      "disk; ran {:.1f} % there, {:.1f} % copied, {:.1f} % on the CPU; {} moved for later\n",
      what, p.tokens_per_second(), Percent(p.in_device, p.experts), Percent(p.in_memory, p.experts),
      Percent(p.on_disk, p.experts), Percent(p.ran_there, p.experts), Percent(p.copied, p.experts),
      Percent(p.on_host, p.experts), p.promoted);
  if (p.seconds <= 0.0) return text;
  const auto lane = [&](std::string_view name, double seconds, uint64_t bytes) {
    return Format("{} {:.1f} % {}", name, 100.0 * seconds / p.seconds, FormatBytes(bytes));
  };
  text += Format("  {:8} of the time until a lane was done: dense {:.1f} %, {}, {}\n", "",
                 100.0 * p.dense_seconds / p.seconds, lane("CPU", p.lanes.host, p.host_bytes),
                 lane("disk", p.lanes.disk, p.disk_bytes));
  for (size_t d = 0; d < devices.size(); ++d) {
    const LanePhase::Device& its = p.devices[d];
    text += Format("  {:8} {}: {}, {}; ran {:.1f} % from its slots, {:.1f} % copied\n", "",
                   devices[d], lane("computing", p.lanes.devices[d].compute, its.bytes),
                   lane("copies", p.lanes.devices[d].copy, its.copy_bytes),
                   Percent(its.ran_there, p.experts), Percent(its.copied, p.experts));
  }
  return text;
}

Json ToJson(const LanePhase& p, const std::vector<std::string>& names) {
  Json devices = Json::Array();
  for (size_t d = 0; d < names.size(); ++d) {
    const LanePhase::Device& its = p.devices[d];
    Json one = Json::Object();
    one.Set("name", names[d])
        .Set("ran_there", its.ran_there)
        .Set("copied", its.copied)
        .Set("staged", its.staged)
        .Set("promoted", its.promoted)
        .Set("moved_back", its.moved_back)
        .Set("bytes", its.bytes)
        .Set("copy_bytes", its.copy_bytes)
        .Set("seconds", p.lanes.devices[d].compute)
        .Set("copy_seconds", p.lanes.devices[d].copy);
    devices.Push(std::move(one));
  }
  Json json = Json::Object();
  json.Set("tokens", p.tokens)
      .Set("steps", p.steps)
      .Set("experts", p.experts)
      .Set("in_device", p.in_device)
      .Set("in_memory", p.in_memory)
      .Set("on_disk", p.on_disk)
      .Set("ran_there", p.ran_there)
      .Set("copied", p.copied)
      .Set("staged", p.staged)
      .Set("on_host", p.on_host)
      .Set("promoted", p.promoted)
      .Set("moved_back", p.moved_back)
      .Set("device_bytes", p.device_bytes)
      .Set("copy_bytes", p.copy_bytes)
      .Set("host_bytes", p.host_bytes)
      .Set("disk_bytes", p.disk_bytes)
      .Set("seconds", p.seconds)
      .Set("dense_seconds", p.dense_seconds)
      .Set("devices", std::move(devices))
      .Set("host_seconds", p.lanes.host)
      .Set("disk_seconds", p.lanes.disk)
      .Set("tps", p.tokens_per_second());
  return json;
}

}  // namespace

std::string LanesText(const LanesMachine& machine, const SweepLine& line) {
  return Format("{:11} {} rows, {} slots on each device ({:.4g} %), {} in memory ({:.4g} %)\n",
                NameOf(line.mode), line.rows, line.device_slots,
                Percent(line.device_slots, machine.experts), line.slots,
                Percent(line.slots, machine.experts)) +
         Describe("decode", line.result.lanes.decode, machine.devices) +
         Describe("prefill", line.result.lanes.prefill, machine.devices);
}

std::string RemoteGainText(const LanesMachine& machine, const SweepLine& with,
                           const SweepLine& without) {
  const auto seconds = [](const SweepLine& line) {
    const LanePhase& decode = line.result.lanes.decode;
    return decode.tokens > 0 ? decode.seconds / static_cast<double>(decode.tokens) : 0.0;
  };
  const RemoteGain gain{.without = seconds(without), .with = seconds(with)};
  const bool are_pair = with.mode == PlaceMode::kAuto && without.mode == PlaceMode::kCpu;
  if (!machine.has_remotes || !are_pair || gain.without <= 0.0) return {};
  return Format("  {} decode is {:.2f} times as fast with them as without\n",
                gain.pays() ? "the hosts pay:" : "the hosts do not pay:", gain.factor());
}

void AddLanes(Json& object, const LanesMachine& machine, const SweepLine& line) {
  object.Set("machine", machine.name)
      .Set("place", NameOf(line.mode))
      .Set("rows", line.rows)
      .Set("device_slots", line.device_slots)
      .Set("decode", ToJson(line.result.lanes.decode, machine.devices))
      .Set("prefill", ToJson(line.result.lanes.prefill, machine.devices));
}

namespace {

std::string Describe(const SweepLine& line) {
  const ReplayResult& r = line.result;
  std::string text =
      Format("{:10} {:6} slots ({:.4g} %)  {:6.2f} % hits, {} misses, {} evictions", line.policy,
             line.slots, line.percent, 100.0 * r.hit_rate(), r.misses, r.evictions);
  if (r.prefetches > 0) {
    text += Format(", {} prefetched, {} of them needed, {} late", r.prefetches, r.used_prefetches,
                   r.late);
  }
  if (r.kept + r.again > 0) {
    text += Format(", {} of {} tokens decoded again ({:.1f} %)", r.again, r.kept + r.again,
                   100.0 * r.fallback_ratio());
  }
  if (r.bytes > 0) text += ", " + FormatBytes(r.bytes) + " read";
  if (r.seconds > 0.0) {
    text +=
        Format(", {:.2f} tok/s, {:.1f} % of the time waiting, {:.1f} % of the bound",
               r.tokens_per_second(), 100.0 * r.stall_seconds / r.seconds, r.percent_of_bound());
  }
  if (r.losses != LossCounts{}) {
    text += Format("; of {} missing {} low, {} skipped, {} dropped, {} replaced; penalty {:.1f}",
                   r.losses.missing, r.losses.low, r.losses.skipped, r.losses.dropped,
                   r.losses.replaced, r.penalty);
  }
  text += "\n";
  text += ScoresText("  predict ", r.predictions);
  return text;
}

}  // namespace

std::string DescribeLines(const std::vector<SweepLine>& lines,
                          const std::optional<LanesMachine>& machine) {
  std::string text = machine ? machine->name + "\n" : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (machine) text += LanesText(*machine, lines[i]) + "  ";
    text += Describe(lines[i]);
    if (machine && i > 0) text += RemoteGainText(*machine, lines[i - 1], lines[i]);
  }
  return text;
}

std::string LinesAsCsv(const std::vector<SweepLine>& lines) {
  const bool has_lanes = std::ranges::any_of(lines, &SweepLine::has_lanes);
  std::string text =
      "policy,slots,percent,tokens,requests,hits,misses,evictions,hit_rate,late,"
      "prefetches,used_prefetches,bytes,seconds,stall_seconds,tokens_per_second,percent_of_bound";
  text += has_lanes ? ",place,rows,device_slots,experts,ran_there,copied,on_host\n" : "\n";
  for (const SweepLine& line : lines) {
    const ReplayResult& r = line.result;
    text += Format("{},{},{:.4g},{},{},{},{},{},{:.6f},", line.policy, line.slots, line.percent,
                   r.tokens, r.requests, r.hits, r.misses, r.evictions, r.hit_rate());
    text +=
        Format("{},{},{},{},{:.6f},{:.6f},{:.4f},{:.2f}", r.late, r.prefetches, r.used_prefetches,
               r.bytes, r.seconds, r.stall_seconds, r.tokens_per_second(), r.percent_of_bound());
    if (line.has_lanes) {
      const LanePhase& decode = r.lanes.decode;
      text += Format(",{},{},{},{},{},{},{}", NameOf(line.mode), line.rows, line.device_slots,
                     decode.experts, decode.ran_there, decode.copied, decode.on_host);
    }
    text += '\n';
  }
  return text;
}

std::string LinesAsJson(const std::vector<SweepLine>& lines,
                        const std::optional<LanesMachine>& machine) {
  Json array = Json::Array();
  for (const SweepLine& line : lines) {
    const ReplayResult& r = line.result;
    Json object = Json::Object();
    object.Set("policy", line.policy).Set("slots", line.slots);
    const ReplayCounts& counts = r;
    AddCounters(object, counts, &CounterText::sim);
    object.Set("predictions", ScoresAsJson(r.predictions));
    if (machine) AddLanes(object, *machine, line);
    array.Push(std::move(object));
  }
  return array.Dump() + "\n";
}

std::string DescribeTuning(const std::vector<TunedAtSize>& sizes) {
  std::string text;
  for (const TunedAtSize& size : sizes) {
    text += Format("{} slots ({:.4g} %), hits and miss penalty on held-out tokens:", size.slots,
                   size.percent);
    for (const TunedAtSize::Plain& plain : size.plain) {
      text += Format(" {} {:.2f} % {:.1f}", plain.name, 100.0 * plain.hit_rate, plain.penalty);
    }
    text += '\n';
    for (const TunedPolicy& tuned : size.tuned) {
      text += Format("  {:6.2f} % {:.1f} ({:.2f} % in training; {:.2f} % {:.1f} untuned)  {}\n",
                     100.0 * tuned.held_out.hit_rate(), tuned.held_out.penalty,
                     100.0 * tuned.training.hit_rate(), 100.0 * tuned.held_out_standard.hit_rate(),
                     tuned.held_out_standard.penalty, ToText(tuned.choice));
    }
  }
  return text;
}

std::string TuningAsJson(const std::vector<TunedAtSize>& sizes) {
  Json array = Json::Array();
  for (const TunedAtSize& size : sizes) {
    Json tuned = Json::Array();
    for (const TunedPolicy& policy : size.tuned) {
      Json object = Json::Object();
      object.Set("policy", policy.choice.name)
          .Set("choice", ToText(policy.choice))
          .Set("training_misses", policy.training.misses)
          .Set("training_hit_rate", policy.training.hit_rate())
          .Set("training_penalty", policy.training.penalty)
          .Set("hit_rate", policy.held_out.hit_rate())
          .Set("penalty", policy.held_out.penalty)
          .Set("standard_penalty", policy.held_out_standard.penalty)
          .Set("standard_hit_rate", policy.held_out_standard.hit_rate());
      tuned.Push(std::move(object));
    }
    Json plain = Json::Object();
    Json penalties = Json::Object();
    for (const TunedAtSize::Plain& one : size.plain) {
      plain.Set(one.name, one.hit_rate);
      penalties.Set(one.name, one.penalty);
    }
    Json object = Json::Object();
    object.Set("slots", size.slots)
        .Set("percent", size.percent)
        .Set("tuned", std::move(tuned))
        .Set("plain_hit_rates", std::move(plain))
        .Set("plain_penalties", std::move(penalties));
    array.Push(std::move(object));
  }
  return array.Dump() + "\n";
}

namespace {

// An axis from 0 in tenths up to the first tenth above the highest rate.
ChartAxis RateAxis(const std::vector<SweepLine>& lines) {
  double highest = 0.0;
  for (const SweepLine& line : lines) highest = std::max(highest, line.result.hit_rate());
  const auto tenths = std::clamp(static_cast<int>(std::ceil(highest * 10.0)), 1, 10);
  ChartAxis axis{.label = "hits", .ticks = {}, .unit = " %"};
  for (int i = 0; i <= tenths; ++i) axis.ticks.push_back(10.0 * i);
  return axis;
}

ChartAxis SlotsAxis(const std::vector<SweepLine>& lines) {
  std::set<double> percents;
  for (const SweepLine& line : lines) percents.insert(line.percent);
  return {.label = "slots, of all experts",
          .ticks = {percents.begin(), percents.end()},
          .unit = " %",
          .is_logarithmic = true};
}

// Name of a line's series. With lanes a policy has a series for each way to place, number of rows
// and size of the devices.
std::string NameOfSeries(const SweepLine& line) {
  if (!line.has_lanes) return line.policy;
  return Format("{}, {}, {} rows, {} on devices", line.policy, NameOf(line.mode), line.rows,
                line.device_slots);
}

}  // namespace

std::string SweepPlot(const std::string& title, const std::vector<SweepLine>& lines) {
  Chart chart{.title = title, .x = SlotsAxis(lines), .y = RateAxis(lines), .series = {}};
  for (const SweepLine& line : lines) {
    const std::string name = NameOfSeries(line);
    auto series = std::ranges::find(chart.series, name, &ChartSeries::name);
    if (series == chart.series.end()) {
      const bool is_limit = line.policy == "belady";
      chart.series.push_back({.name = name,
                              .colour = is_limit ? kLimitColour : SeriesColour(chart.series.size()),
                              .points = {},
                              .is_joined = true,
                              .is_dashed = is_limit});
      series = std::prev(chart.series.end());
    }
    series->points.push_back({.x = line.percent, .y = 100.0 * line.result.hit_rate()});
  }
  return DrawChart(chart);
}

}  // namespace moestro
