// SPDX-License-Identifier: MIT
#include "cli/report.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {

namespace {

// Whether `fd` is that of a terminal that has hung up: isatty() fails with EIO for no other file.
bool IsHungUp(int fd) { return isatty(fd) == 0 && errno == EIO; }

}  // namespace

Status Output::Write(std::string_view text) { return WriteBytes(VisibleLines(text)); }

Status Output::WriteGenerated(std::string_view part) {
  return isatty(fd_) == 1 ? WriteBytes(generated_.Add(part)) : WriteBytes(part);
}

Status Output::WriteBytes(std::string_view bytes) {
  while (!bytes.empty() && !closed_ && status_) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    const int why = errno;
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (why == EPIPE || (why == EIO && IsHungUp(fd_))) {
      closed_ = true;
    } else if (why != EINTR) {
      status_ = Fail(Errc::kIo, "cannot write to standard output: {}", std::strerror(why));
    }
  }
  return status_;
}

Status WriteFile(const OutputPath& path, std::string_view text) {
  TRY(OutputFile file, OutputFile::Create(path));
  TRY_STATUS(file.Write(std::as_bytes(std::span(text))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

int PrintError(const Error& error) {
  PrintOnStderr(Format("moestro: {}\n", Visible(error.message)));
  return error.code == Errc::kUsage ? 2 : 1;
}

int ExitCode(const Status& status) { return status ? 0 : PrintError(status.error()); }

namespace {

// Losses of decode; empty if all was exact.
std::string LossText(const PhaseStats& decode) {
  const LossCounts& lost = decode.losses;
  if (lost == LossCounts{}) return "";
  const auto percent = [&](uint64_t part) {
    return lost.missing > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(lost.missing)
                            : 0.0;
  };
  std::string text = Format("lossy    of {} experts missing {:.1f} % low, {:.1f} % skipped",
                            lost.missing, percent(lost.low), percent(lost.skipped));
  if (lost.dropped > 0) text += Format(", {:.1f} % dropped", percent(lost.dropped));
  if (lost.replaced > 0) text += Format("; {} gave way to resident ones", lost.replaced);
  if (lost.upgrades > 0) text += Format("; {} upgraded", lost.upgrades);
  return text + "\n";
}

// Counts of passes with fewer experts; empty without such passes.
std::string LittleText(const LittleStats& little) {
  if (little.tokens == 0) return "";
  std::string text = Format("little   {} of {} tokens decoded again ({:.1f} %)", little.again,
                            little.tokens, 100.0 * little.fallback_ratio());
  if (little.foreseen.predicted > 0) {
    text += Format(
        "; {:.1f} % of what they asked for was foreseen, {} experts read ahead, {} of "
        "them needed",
        100.0 * little.foreseen.recall(), little.prefetches, little.used_prefetches);
  }
  return text + "\n";
}

// Settings that repeat a text which depends on the number of slots; empty if the text does not
// depend on it.
std::string RepeatText(const RunReport& report) {
  if (report.memory.repeating_cache == 0) return "";
  return Format("repeat   the same text with --cache {} and kernels {}\n",
                report.memory.repeating_cache, report.kernels);
}

// Work of tables on the disk; empty for models without any.
std::string TableText(const RunStats& stats) {
  const TableCounts& prompt = stats.prefill.table;
  const TableCounts& decode = stats.decode.table;
  if (prompt.rows + decode.rows == 0) return "";
  return Format(
      "table    {} rows of tables, {} of them in memory; {} read in {} reads, {:.0f} ms waited\n",
      prompt.rows + decode.rows, prompt.hits + decode.hits,
      FormatBytes(prompt.bytes_read + decode.bytes_read), prompt.reads + decode.reads,
      1e3 * (prompt.wait_seconds + decode.wait_seconds));
}

// Counts of drafts; empty without drafts.
std::string DraftText(const DraftStats& drafts) {
  if (drafts.proposed == 0) return "";
  return Format("drafts   {} of {} drafted tokens taken ({:.1f} %), in {} steps\n", drafts.accepted,
                drafts.proposed, 100.0 * drafts.acceptance(), drafts.rounds);
}

}  // namespace

std::string DraftFiguresText(const DraftControl::Figures& figures) {
  if (figures.plain_seconds <= 0.0) return "";
  return Format("drafts   {:.1f} ms a token without, {} {:.1f} ms with them\n",
                1e3 * figures.plain_seconds, figures.is_measured ? "and" : "and an expected",
                1e3 * figures.drafted_seconds);
}

namespace {

// Falls of speed; empty without one.
std::string SlowedText(const SlowedStats& slowed) {
  const auto times = [](uint64_t n) {
    return n == 1 ? std::string("once") : Format("{} times", n);
  };
  std::string text;
  if (slowed.disk > 0)
    text += Format("slowed   the disk, {}: hot, or in use by others\n", times(slowed.disk));
  if (slowed.compute > 0) {
    text += Format("slowed   the processor, {}: hot, or in use by others\n", times(slowed.compute));
  }
  return text;
}

// Sharing of experts among the rows of decode; empty if a step had one row.
std::string RowsText(const RunReport& report) {
  const PhaseStats& decode = report.stats.decode;
  if (report.probes.rows_per_step < 2 || decode.requests == 0) return "";
  return Format(
      "rows     {} in a step, {:.2f} to an expert; {:.1f} % of their uses hit, {} read for each\n",
      report.probes.rows_per_step, decode.rows_per_use(), 100.0 * decode.row_hit_rate(),
      FormatBytes(static_cast<uint64_t>(decode.bytes_per_row())));
}

Json DeviceAsJson(const DeviceBudget& plan, const DeviceWork& did, const DeviceTraffic& traffic,
                  const LaneRatios::Device& ratios) {
  Json json = Json::Object();
  json.Set("name", plan.info.name)
      .Set("bytes", plan.bytes)
      .Set("dense_bytes", plan.dense)
      .Set("kv_bytes", plan.kv)
      .Set("slots", plan.slots)
      .Set("difference", plan.difference);
  AddCounters(json, did);
  json.Set("copies_from_pinned_memory", plan.from_pinned)
      .Set("costs", std::string(NameOf(plan.costs)))
      .Set("compute_ratio", ratios.compute)
      .Set("copy_ratio", ratios.copy);
  if (plan.ways) {
    json.Set("expected_tps", 1.0 / plan.ways->Of(plan.ways->best_there()))
        .Set("expected_cpu_tps", 1.0 / plan.ways->Of(DeviceWay::kCpu));
  }
  Json driver = Json::Object();
  AddCounters(driver, traffic);
  json.Set("driver", std::move(driver));
  return json;
}

void AddDevices(Json& object, const RunReport& report) {
  if (report.memory.devices.empty()) return;
  Json devices = Json::Array();
  for (size_t d = 0; d < report.memory.devices.size(); ++d) {
    devices.Push(DeviceAsJson(report.memory.devices[d], report.device.each[d],
                              report.device.traffic[d], report.lane_ratios.devices[d]));
  }
  object.Set("devices", std::move(devices))
      .Set("device_tiers", std::string(NameOf(report.memory.tiers)))
      .Set("device_planned", report.device.experts)
      .Set("device_computed", report.device.computed())
      .Set("device_layers_there", report.device.layers_there)
      .Set("device_failures", report.device.failures)
      .Set("host_ratio", report.lane_ratios.host)
      .Set("disk_ratio", report.lane_ratios.disk);
}

// Limit for any kernel and policy; empty: not requested.
std::string LimitText(const RunReport& report) {
  if (!report.limit) return "";
  if (!*report.limit) return Format("limit    not given: {}\n", report.limit->error().message);
  const Limit& limit = **report.limit;
  const bool by_disk = limit.disk_seconds() > limit.memory_seconds();
  return Format("limit    {:.1f} tok/s in decode, set by the {}; {:.1f} % reached\n",
                limit.tokens_per_second(report.stats.decode.tokens), by_disk ? "disk" : "memory",
                limit.percent(report.stats.decode.seconds));
}

// Larger machines that the serial share is calculated for. Bandwidths are assumed.
struct LargerMachine {
  uint32_t cores;
  double bandwidth;  // bytes per second
};
constexpr std::array<LargerMachine, 2> kMachines = {
    {{.cores = 16, .bandwidth = 200e9}, {.cores = 64, .bandwidth = 400e9}}};

std::string SerialText(const RunReport& report) {
  const std::optional<SerialShare> serial = SerialShareOf(report);
  if (!serial) return "";
  std::string text =
      Format("serial   {:.1f} us of a layer's decode by one thread", 1e6 * serial->layer_seconds());
  for (const LargerMachine& m : kMachines) {
    text += Format("{} {:.0f} % of a token with {} cores at {:.0f} GB/s",
                   &m == kMachines.data() ? "; that would be" : ",",
                   100.0 * serial->share(m.bandwidth), m.cores, m.bandwidth / 1e9);
  }
  return text + "\n";
}

void AddSerial(Json& object, const RunReport& report) {
  const std::optional<SerialShare> serial = SerialShareOf(report);
  if (!serial) return;
  object.Set("serial_seconds_per_layer", serial->layer_seconds());
  for (const LargerMachine& m : kMachines) {
    object.Set(Format("serial_share_{}_cores", m.cores), serial->share(m.bandwidth));
  }
}

void AddLimit(Json& object, const RunReport& report) {
  if (!report.limit) return;
  if (!*report.limit) {
    object.Set("limit_not_given", report.limit->error().message);
    return;
  }
  const Limit& limit = **report.limit;
  object.Set("limit_tps", limit.tokens_per_second(report.stats.decode.tokens))
      .Set("percent_of_limit", limit.percent(report.stats.decode.seconds))
      .Set("touched_bytes_decode", limit.touched_bytes)
      .Set("fewest_bytes_decode", limit.fewest_bytes)
      .Set("memory_bandwidth_probe", limit.memory_bandwidth.best)
      .Set("memory_bandwidth_probe_least", limit.memory_bandwidth.least);
}

// The source of the costs, and the lanes' present times relative to them.
std::string CostsText(const DeviceBudget& plan, const LaneRatios& by_now,
                      const LaneRatios::Device& its) {
  if (plan.costs == CostSource::kFile) return "costs from a file";
  const std::string begin =
      by_now.host_begin > 0.0 ? Format(" and {:.0f} us a layer", by_now.host_begin * 1e6) : "";
  return Format(
      "costs {}; by now host {:.2f}{}, device {:.2f}, copy {:.2f}, disk {:.2f} times as much",
      plan.costs == CostSource::kKept ? "from an earlier start" : "measured", by_now.host, begin,
      its.compute, its.copy, by_now.disk);
}

// Work of a device.
std::string DeviceText(const RunReport& report, size_t device) {
  const DeviceBudget& plan = report.memory.devices[device];
  const DeviceWork& did = report.device.each[device];
  const uint64_t experts = report.device.experts;
  const auto percent = [&](uint64_t part) {
    return experts > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(experts) : 0.0;
  };
  std::string text = Format(
      "device   {}, {} expert slots in {}; {:.1f} % of experts computed there, {:.1f} % copied "
      "first, {} there from the start, {} moved for later, {} copied in all\n",
      plan.info.name, plan.slots, FormatBytes(plan.bytes), percent(did.computed()),
      percent(did.copied), did.filled, did.promotions, FormatBytes(did.copied_bytes));
  if (did.staged + did.moved_back > 0) {
    text += Format("         {} read past memory's slots, {} moved back to memory\n", did.staged,
                   did.moved_back);
  }
  if (did.failures > 0) text += Format("         {} layers failed there\n", did.failures);
  text += Format("         {}; copies from {} memory, tiers {}\n",
                 CostsText(plan, report.lane_ratios, report.lane_ratios.devices[device]),
                 plan.from_pinned ? "pinned" : "plain", NameOf(report.memory.tiers));
  if (plan.ways) {
    const WayPrices& ways = *plan.ways;
    text += Format("         expected {:.1f} tok/s in decode, and {:.1f} with the CPU alone\n",
                   1.0 / ways.Of(ways.best_there()), 1.0 / ways.Of(DeviceWay::kCpu));
  }
  if (plan.dense == 0) return text;
  return text + Format(
                    "         dense weights ({}), keys and values ({}), attention and head there; "
                    "rows of {} layers did not come back\n",
                    FormatBytes(plan.dense), FormatBytes(plan.kv), report.device.layers_there);
}

// Work of all devices; empty without devices.
std::string DevicesText(const RunReport& report) {
  const std::vector<DeviceBudget>& devices = report.memory.devices;
  std::string text;
  for (size_t d = 0; d < devices.size(); ++d) text += DeviceText(report, d);
  if (devices.empty() || devices.front().dense > 0) return text;
  return text + "         dense weights, keys and values, attention and head on the CPU\n";
}

}  // namespace

std::string SummaryText(const RunReport& report) {
  const PhaseStats& prefill = report.stats.prefill;
  const PhaseStats& decode = report.stats.decode;
  std::string text;
  text +=
      Format("prefill  {:6} tokens  {:9.1f} tok/s\n", prefill.tokens, prefill.tokens_per_second());
  text += Format("decode   {:6} tokens  {:9.1f} tok/s  ({:.1f} ms p50, {:.1f} ms p95)\n",
                 decode.tokens, decode.tokens_per_second(), report.stats.decode_ms.Quantile(0.5),
                 report.stats.decode_ms.Quantile(0.95));
  const uint64_t uses = prefill.requests + decode.requests;
  const uint64_t hits = prefill.hits + decode.hits;
  const double hit_rate = uses > 0 ? static_cast<double>(hits) / static_cast<double>(uses) : 0.0;
  text += Format("experts  {:5.1f} % hits in decode, {:.1f} % in all; {} read, {:.2f} s waited\n",
                 100.0 * decode.hit_rate(), 100.0 * hit_rate,
                 FormatBytes(prefill.bytes_read + decode.bytes_read),
                 prefill.wait_seconds + decode.wait_seconds);
  text += RowsText(report);
  if (decode.prefetches > 0) {
    text +=
        Format("prefetch {} experts ahead of need, {} of them needed, {} given up; {} came late\n",
               decode.prefetches, decode.used_prefetches, decode.dropped_prefetches, decode.late);
  }
  text += TableText(report.stats);
  text += LossText(decode);
  text += LittleText(report.stats.little);
  text += DraftText(report.stats.drafts);
  text += SlowedText(report.stats.slowed);
  text += ScoresText("predict  ", report.predictions);
  const SpeedBound bound = DecodeBound(report.stats, report.probes);
  if (bound.seconds() > 0.0) {
    const bool by_disk = bound.disk_seconds > bound.compute_seconds;
    text += Format("bound    {:.1f} tok/s in decode, set by the {}; {:.1f} % reached\n",
                   bound.tokens_per_second(decode.tokens), by_disk ? "disk" : "processor",
                   bound.percent(decode.seconds));
  }
  if (report.together) {
    const SpeedBound both = DecodeBound(report.stats, *report.together);
    text += Format("         {:.1f} tok/s with reads and computation at once; {:.1f} % reached\n",
                   both.tokens_per_second(decode.tokens), both.percent(decode.seconds));
  }
  text += LimitText(report);
  text += SerialText(report);
  text += Format("memory   {} peak of a budget of {}; {} of {} experts had a place",
                 FormatBytes(report.peak_rss), FormatBytes(report.memory.budget),
                 report.memory.n_slots, report.memory.n_experts);
  if (report.memory.n_low_slots > 0) {
    text += Format(", and {} low copies", report.memory.n_low_slots);
  }
  if (report.memory.kv_type != KvType::kF16) {
    text += Format("; keys and values in {}", NameOf(report.memory.kv_type));
  }
  text += "\n";
  text += DevicesText(report);
  text += Format("policy   {}\n", ToText(report.policy));
  return text + RepeatText(report);
}

std::string ScoresText(std::string_view begin, const std::vector<PredictionScore>& scores) {
  std::string text;
  for (size_t i = 0; i < scores.size(); ++i) {
    const PredictionScore& score = scores[i];
    if (score.predicted == 0) continue;
    text += Format("{}{} ahead: {:.1f} % recall, {:.1f} % precision, {:.1f} % of absent experts\n",
                   begin, i + 1, 100.0 * score.recall(), 100.0 * score.precision(),
                   100.0 * score.absent_precision());
  }
  return text;
}

Json ScoresAsJson(const std::vector<PredictionScore>& scores) {
  Json array = Json::Array();
  for (size_t i = 0; i < scores.size(); ++i) {
    Json score = Json::Object();
    score.Set("distance", i + 1);
    AddCounters(score, scores[i]);
    array.Push(std::move(score));
  }
  return array;
}

void AddTogether(Json& object, const RunReport& report) {
  if (!report.together) return;
  const SpeedBound bound = DecodeBound(report.stats, *report.together);
  object.Set("disk_bandwidth_together", report.together->disk_bandwidth.best)
      .Set("compute_seconds_together", report.together->compute_seconds_per_token.value_or(0.0))
      .Set("percent_of_bound_together", bound.percent(report.stats.decode.seconds));
}

void AddReport(Json& object, const RunReport& report) {
  AddCounters(object, report.stats.little);
  AddCounters(object, report.stats.drafts);
  AddCounters(object, report.stats.slowed);
  const PhaseStats& decode = report.stats.decode;
  const SpeedBound bound = DecodeBound(report.stats, report.probes);
  const SpeedBound prefill_bound = PrefillBound(report.stats, report.probes);
  const double of_sums = decode.seconds > 0.0 ? 100.0 * bound.of_sums() / decode.seconds : 0.0;
  AddDevices(object, report);
  object.Set("ram_budget", report.memory.budget)
      .Set("peak_rss", report.peak_rss)
      .Set("slots", report.memory.n_slots)
      .Set("low_slots", report.memory.n_low_slots)
      .Set("slot_bytes", report.memory.slots)
      .Set("kv_type", std::string(NameOf(report.memory.kv_type)))
      .Set("kv_bytes", report.memory.kv)
      .Set("experts", report.memory.n_experts)
      .Set("policy", ToText(report.policy))
      .Set("kernels", report.kernels)
      .Set("recalled_experts", report.recalled)
      .Set("repeating_cache", report.memory.repeating_cache);
  AddCounters(object, report.stats.prefill, &CounterText::prefill);
  object.Set("prefill_disk_bound_seconds", prefill_bound.disk_seconds);
  AddCounters(object, decode);
  object.Set("decode_ms_p10", report.stats.decode_ms.Quantile(0.1))
      .Set("decode_ms_p50", report.stats.decode_ms.Quantile(0.5))
      .Set("decode_ms_p95", report.stats.decode_ms.Quantile(0.95))
      .Set("predictions", ScoresAsJson(report.predictions))
      .Set("io_depth", report.io_depth)
      .Set("disk_bandwidth_probe", report.probes.disk_bandwidth.best)
      .Set("disk_bandwidth_probe_least", report.probes.disk_bandwidth.least)
      .Set("compute_seconds_per_token", report.probes.compute_seconds_per_token.value_or(0.0))
      .Set("bound_tps", bound.tokens_per_second(decode.tokens))
      .Set("percent_of_bound", bound.percent(decode.seconds))
      .Set("percent_of_bound_of_sums", of_sums);
  AddTogether(object, report);
  AddSerial(object, report);
  AddLimit(object, report);
}

}  // namespace moestro
