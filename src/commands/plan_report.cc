// SPDX-License-Identifier: MIT
#include "commands/plan_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "engine/engine_options.h"
#include "learned/kept_facts.h"

namespace moestro {
namespace {

constexpr double kGiga = 1e9;

// "12 to 18", "14.2 to 16.9".
std::string SpeedText(const SpeedRange& speed) {
  const auto text = [](double x) { return x < 10.0 ? Format("{:.1f}", x) : Format("{:.0f}", x); };
  return Format("{} to {}", text(speed.low), text(speed.high));
}

std::string MachineText(const PlanReport& r) {
  constexpr uint64_t kUsualPage = 4096;
  const std::string pages = r.machine.page > kUsualPage
                                ? Format(" in pages of {}", FormatBytes(r.machine.page))
                                : std::string();
  return Format("machine    {}; {} of memory{}, disk {:.1f} GB/s ({})\n", r.machine.cpu,
                FormatBytes(r.machine.memory), pages, r.machine.disk / kGiga, r.measured);
}

std::string ModelText(const PlanReport& r) {
  const PlannedModel& p = r.planned;
  std::string text = Format("model      {}, {} in {} file{}\n", Visible(p.title),
                            FormatBytes(p.file_bytes), p.n_files, p.n_files == 1 ? "" : "s");
  text +=
      p.engine == "native"
          ? std::string("engine     native\n")
          : Format("engine     hosted: libllama's forward pass on experts within the budget{}\n",
                   p.refusal.empty() ? "" : " (" + p.refusal + ")");
  return text;
}

// The budget's lines: whether the model fits, and how the budget is divided.
std::string BudgetText(const PlanReport& r) {
  const uint64_t least = r.speeds.empty() ? 0 : r.speeds.front().fit.ram;
  if (!r.chosen) {
    return Format("fits       no: the smallest budget that works is {}\n", RamText(least));
  }
  const Fit& fit = r.chosen->fit;
  const FixedMemory& fixed = r.planned.fixed;
  std::string text = Format("fits       yes, from {}\n", RamText(least));
  text += Format("{}  --ram {}: {:.0f} % of the experts in memory{}\n",
                 r.is_recommended ? "recommended" : "asked for  ", RamText(fit.ram),
                 100.0 * fit.share(),
                 fit.slots < fit.experts ? ", the others read from the disk when needed" : "");
  text += Format("           {} always there, {} for {} tokens of context, {} to work with\n",
                 FormatBytes(fixed.dense), FormatBytes(fixed.kv), r.planned.ctx,
                 FormatBytes(fixed.work + fixed.process));
  if (r.planned.needs.table_bytes > 0) {
    text += Format("           {} of n-grams stay on the disk: a token reads {} rows\n",
                   FormatBytes(r.planned.needs.table_bytes), r.planned.needs.table_rows);
  }
  text += Format("speed      {} tok/s decoded, {} tok/s of a prompt\n", SpeedText(r.chosen->decode),
                 SpeedText(r.chosen->prompt));
  return text;
}

// Decode in the chosen budget. REQUIRES: hosts that are of use.
SpeedRange WithHosts(const PlanReport& r) {
  const double times = r.hosts->price.gain.factor();
  return {.low = times * r.chosen->decode.low, .high = times * r.chosen->decode.high};
}

// Decode in the chosen budget. REQUIRES: a device that is of use.
SpeedRange WithDevice(const PlanReport& r) {
  const auto [less, more] =
      std::minmax({r.device->even.gain.factor(), r.device->recorded.gain.factor()});
  return {.low = less * r.chosen->decode.low, .high = more * r.chosen->decode.high};
}

std::string DeviceText(const PlanReport& r) {
  if (!r.device) return {};
  const PlannedDevice& device = *r.device;
  std::string text =
      Format("device     {}, {} of its memory", Printable(device.name), FormatBytes(device.vram));
  if (!device.refusal.empty()) return Format("{}, of no use: {}\n", text, device.refusal);
  const bool pays = device.even.gain.pays() && device.recorded.gain.pays();
  text += Format(": {}{:.0f} % of the experts there\n",
                 device.even.has_dense ? "the dense part and " : "", 100.0 * device.even.share);
  return text + Format("           {} {} tok/s decoded, and {} by the CPU alone\n",
                       pays ? "it pays:" : "it hardly pays:", SpeedText(WithDevice(r)),
                       SpeedText(r.chosen->decode));
}

std::string_view NameOf(RoutingSource source) {
  constexpr std::array<std::string_view, 3> kNames{"range", "family", "run"};
  return kNames[static_cast<size_t>(source)];
}

std::string RoutingText(const PlanReport& r) {
  switch (r.routing) {
    case RoutingSource::kRun:
      return "routing    as the model's last run here has shown\n";
    case RoutingSource::kFamily:
      return Format("routing    as it was recorded of {}\n", r.planned.needs.family);
    case RoutingSource::kRange:
      break;
  }
  return Format(
      "routing    none of {} has been recorded: from even routing to that of a recorded model\n",
      r.planned.needs.family);
}

std::string DiskText(const PlanReport& r) {
  if (r.to_fetch == 0) return Format("disk       the model is here, in {}\n", r.folder);
  std::string text = Format("disk       {} to fetch into {}", FormatBytes(r.to_fetch), r.folder);
  if (r.free_bytes) {
    text += Format(", {} free", FormatBytes(*r.free_bytes));
    if (*r.free_bytes < r.to_fetch) {
      text += Format(": {} too little", FormatBytes(r.to_fetch - *r.free_bytes));
    }
  }
  return text + "\n";
}

std::string HostsText(const PlanReport& r) {
  if (!r.hosts) return {};
  const PlannedHosts& hosts = *r.hosts;
  constexpr double kMs = 1e3;
  std::string text = Format("hosts      {}: {}", hosts.names, FormatBytes(hosts.bytes));
  if (!hosts.refusal.empty()) return Format("{}, of no use: {}\n", text, hosts.refusal);
  const RemoteGain& gain = hosts.price.gain;
  text += Format(", {:.0f} % of the experts, at {:.3g} Gbit/s and {:.2g} ms\n",
                 100.0 * hosts.price.share, hosts.network.gigabits, kMs * hosts.network.round_trip);
  return text + Format("           {} decode {:.2g} times as fast as without, {} tok/s\n",
                       gain.pays() ? "they pay:" : "they do not pay:", gain.factor(),
                       SpeedText(WithHosts(r)));
}

std::string TableText(const PlanReport& r) {
  std::string text = "\n--ram (about)   experts in memory   decode tok/s   prompt tok/s\n";
  for (const BudgetSpeed& f : r.speeds) {
    text += Format("  {:>10}          {:5.1f} %        {:>12}   {:>12}{}\n", RamText(f.fit.ram),
                   100.0 * f.fit.share(), SpeedText(f.decode), SpeedText(f.prompt),
                   f.fit.ram > r.machine.memory ? "   more than this machine has" : "");
  }
  return text;
}

std::string ChoicesText(const PlanReport& r) {
  if (r.choices.empty()) return {};
  std::string text = "\nfiles, the best first   size         decode tok/s in that memory\n";
  for (const PlannedChoice& choice : r.choices) {
    text += Format("{} {:<22} {:>10}   {:>12}\n", choice.is_planned ? "*" : " ",
                   Printable(choice.label), FormatBytes(choice.bytes),
                   choice.decode ? SpeedText(*choice.decode) : "does not fit");
  }
  return text;
}

Json SpeedAsJson(const SpeedRange& speed) {
  Json json = Json::Object();
  json.Set("low", speed.low).Set("high", speed.high).Set("middle", speed.middle());
  return json;
}

Json BudgetAsJson(const BudgetSpeed& f) {
  Json json = FitAsJson(f.fit);
  json.Set("decode_tps", SpeedAsJson(f.decode)).Set("prompt_tps", SpeedAsJson(f.prompt));
  return json;
}

Json DeviceAsJson(const PlanReport& r) {
  if (!r.device) return Json();
  const PlannedDevice& device = *r.device;
  Json json = Json::Object();
  json.Set("name", device.name).Set("bytes", device.vram);
  if (!device.refusal.empty()) return std::move(json.Set("refusal", device.refusal));
  return std::move(json.Set("has_dense_part", device.even.has_dense)
                       .Set("share_of_experts", device.even.share)
                       .Set("decode_tps", SpeedAsJson(WithDevice(r))));
}

Json HostsAsJson(const PlanReport& r) {
  if (!r.hosts) return {};
  const PlannedHosts& hosts = *r.hosts;
  constexpr double kMs = 1e3;
  Json json = Json::Object();
  json.Set("names", hosts.names)
      .Set("bytes", hosts.bytes)
      .Set("network_gbit_per_s", hosts.network.gigabits)
      .Set("round_trip_ms", kMs * hosts.network.round_trip);
  if (!hosts.refusal.empty()) return std::move(json.Set("refusal", hosts.refusal));
  return std::move(json.Set("share", hosts.price.share)
                       .Set("times", hosts.price.gain.factor())
                       .Set("pays", hosts.price.gain.pays())
                       .Set("decode_tps", SpeedAsJson(WithHosts(r))));
}

Json ChoicesAsJson(const PlanReport& r) {
  Json choices = Json::Array();
  for (const PlannedChoice& choice : r.choices) {
    Json json = Json::Object();
    json.Set("label", choice.label)
        .Set("bytes", choice.bytes)
        .Set("is_planned", choice.is_planned)
        .Set("decode_tps", choice.decode ? SpeedAsJson(*choice.decode) : Json());
    choices.Push(std::move(json));
  }
  return choices;
}

}  // namespace

std::string RamText(uint64_t bytes) {
  const uint64_t tenths = 10 * (bytes % kGiB);
  const bool is_exact = bytes >= kGiB ? tenths % kGiB == 0 : bytes % kMiB == 0;
  if (is_exact) return FormatBytes(bytes);
  return Format("{} MiB", (bytes + kMiB - 1) / kMiB);
}

std::string PlanText(const PlanReport& report) {
  return ModelText(report) + MachineText(report) + BudgetText(report) + DeviceText(report) +
         HostsText(report) + RoutingText(report) + DiskText(report) + TableText(report) +
         ChoicesText(report);
}

std::string PlanLine(const PlanReport& r) {
  const uint64_t least = r.speeds.empty() ? 0 : r.speeds.front().fit.ram;
  if (!r.chosen) {
    return Format("does not fit: the smallest budget that works is {}", RamText(least));
  }
  const Fit& fit = r.chosen->fit;
  return Format(
      "fits from {} on; in {} with {:.0f} % of its experts in memory {} tok/s are expected, and {} "
      "of a prompt",
      RamText(least), RamText(fit.ram), 100.0 * fit.share(), SpeedText(r.chosen->decode),
      SpeedText(r.chosen->prompt));
}

Json FitAsJson(const Fit& fit) {
  Json json = Json::Object();
  json.Set("ram", fit.ram)
      .Set("slots", fit.slots)
      .Set("experts", fit.experts)
      .Set("expert_share", fit.share());
  return json;
}

Json PlanAsJson(const PlanReport& r) {
  Json table = Json::Array();
  for (const BudgetSpeed& f : r.speeds) table.Push(BudgetAsJson(f));
  Json machine = Json::Object();
  machine.Set("cpu", r.machine.cpu)
      .Set("threads", r.machine.threads)
      .Set("memory", r.machine.memory)
      .Set("page", r.machine.page)
      .Set("disk_bytes_per_second", r.machine.disk)
      .Set("measured", r.measured);
  const PlannedModel& p = r.planned;
  Json json = Json::Object();
  json.Set("model", r.model)
      .Set("title", p.title)
      .Set("architecture", p.needs.family)
      .Set("engine", p.engine)
      .Set("files", p.n_files)
      .Set("file_bytes", p.file_bytes)
      .Set("ctx", p.ctx)
      .Set("dense_bytes", p.fixed.dense)
      .Set("kv_bytes", p.fixed.kv)
      .Set("work_bytes", p.fixed.work + p.fixed.process)
      .Set("expert_bytes", p.needs.all_experts)
      .Set("table_bytes", p.needs.table_bytes)
      .Set("fits", r.chosen.has_value())
      .Set("smallest", r.speeds.empty() ? Json() : Json(r.speeds.front().fit.ram))
      .Set("is_recommended", r.is_recommended)
      .Set("chosen", r.chosen ? BudgetAsJson(*r.chosen) : Json())
      .Set("routing", NameOf(r.routing))
      .Set("folder", r.folder)
      .Set("bytes_to_fetch", r.to_fetch)
      .Set("free_bytes", r.free_bytes ? Json(*r.free_bytes) : Json())
      .Set("machine", std::move(machine))
      .Set("budgets", std::move(table))
      .Set("choices", ChoicesAsJson(r))
      .Set("device", DeviceAsJson(r))
      .Set("hosts", HostsAsJson(r));
  return json;
}

namespace {

// Share of the experts that memory held; nullopt: too few tokens were decoded, or in a way that
// plans do not cover.
std::optional<double> ShareOfPlainRun(const RunReport& report) {
  constexpr uint64_t kFewestTokens = 48;  // fewer are dominated by the cold start
  const PhaseStats& decode = report.stats.decode;
  const MemoryPlan& memory = report.memory;
  const bool is_plain = memory.devices.empty() && memory.n_low_slots == 0 &&
                        report.probes.rows_per_step == 1 && decode.losses.missing == 0;
  if (!is_plain || decode.tokens < kFewestTokens || memory.n_experts == 0) return std::nullopt;
  return static_cast<double>(memory.n_slots) / static_cast<double>(memory.n_experts);
}

}  // namespace

std::optional<PlannedSpeed> FindPlanned(const std::string& folder, const Engine& engine,
                                        const RunReport& report) {
  const std::optional<double> share = ShareOfPlainRun(report);
  if (!share) return std::nullopt;
  const EngineFacts& facts = engine.facts();
  return SpeedAt(KeptPlan(folder, facts.id.fingerprint, facts.threads), *share);
}

void KeepCachingSeen(const std::string& folder, const Engine& engine, const RunReport& report) {
  // Beyond this share most misses are first reads, which depend on the cold start and not on
  // caching.
  constexpr double kMostShare = 0.6;
  const std::optional<double> share = ShareOfPlainRun(report);
  const PhaseStats& decode = report.stats.decode;
  if (!share || *share > kMostShare || decode.requests == 0) return;
  if (report.policy.name != PolicyChoice().name) return;
  const uint64_t missing = decode.absent() + decode.used_prefetches;
  KeepCaching(folder, engine.facts().id.fingerprint,
              {.share = *share,
               .missing = std::min(
                   static_cast<double>(missing) / static_cast<double>(decode.requests), 1.0)});
}

std::string PlannedText(const PlannedSpeed& planned, const RunReport& report) {
  const double came = report.stats.decode.tokens_per_second();
  const char* const where = came < planned.low    ? "less than planned"
                            : came > planned.high ? "more than planned"
                                                  : "as planned";
  return Format("planned  {:.1f} to {:.1f} tok/s in decode; {:.1f} came, {}\n", planned.low,
                planned.high, came, where);
}

void AddPlanned(Json& object, const PlannedSpeed& planned) {
  object.Set("planned_low_tps", planned.low).Set("planned_high_tps", planned.high);
}

}  // namespace moestro
