// SPDX-License-Identifier: MIT
#include "lab/sim_report.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/counters_json.h"
#include "base/format.h"
#include "base/json.h"
#include "cli/report.h"

namespace moestro {
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

}  // namespace moestro
