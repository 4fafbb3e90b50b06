// SPDX-License-Identifier: MIT
#include "lab/lanes_report.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "base/json.h"
#include "native/plan/remote_gain.h"

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

}  // namespace moestro
