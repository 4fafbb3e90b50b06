// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cache_files.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "learned/machine_files.h"
#include "native/machine_probe.h"

namespace moestro {
namespace {

struct DevicesOptions {
  bool profile = false;
  bool json = false;
  uint32_t threads = 0;
  std::string model;  // empty: random weights, and no disk
  OutputPath output;  // empty: no file
};

struct Line {
  DeviceInfo info;
  std::optional<DeviceProfile> profile = {};
  // The reason why a requested profile is missing; empty: none is.
  std::string why_not = {};
};

std::string CostText(const Cost& cost) {
  std::string text = Format("{:.0f} us", cost.base * 1e6);
  if (cost.per_byte > 0.0) text += Format(" + bytes at {:.1f} GB/s", 1e-9 / cost.per_byte);
  if (cost.per_row > 0.0 && cost.per_byte > 0.0) {
    text += Format(" + {:.1f} % for each row more", 100.0 * cost.per_row / cost.per_byte);
  }
  if (cost.error > 0.0) text += Format(" (missed by {:.0f} %)", 100.0 * cost.error);
  return text;
}

std::string TextOf(const Line& line) {
  const DeviceInfo& d = line.info;
  std::string text = Format("{:<10} {:<11} {:>9} of {:<9} free  {}\n", d.name, KindName(d.kind),
                            FormatBytes(d.memory_free), FormatBytes(d.memory_total), d.description);
  if (!line.why_not.empty()) text += Format("  {}\n", line.why_not);
  if (!line.profile) return text;
  const LatencyModel& m = line.profile->latency;
  const DeviceCosts& its = m.devices.front();
  text += Format("  differs from the CPU by {:.1e} (mean squares)\n", line.profile->difference);
  text +=
      Format("  launch  {:.0f} us; its calls take {:.0f} us\n", its.launch * 1e6, its.calls * 1e6);
  text += Format("  expert  {}\n", CostText(its.compute));
  text += Format("  on CPU  {}; {:.2f} times as long beside the device\n", CostText(m.host),
                 m.host_beside);
  text +=
      Format("  copy    {}; {:.2f} times as long beside the CPU; from {} memory\n",
             CostText(its.copy), its.copy_beside, line.profile->from_pinned ? "pinned" : "plain");
  if (m.disk != Cost{}) text += Format("  disk    {}\n", CostText(m.disk));
  return text;
}

Json JsonOf(const Cost& cost) {
  Json json = Json::Object();
  json.Set("base_seconds", cost.base)
      .Set("seconds_per_byte", cost.per_byte)
      .Set("seconds_per_byte_and_row", cost.per_row)
      .Set("error", cost.error);
  return json;
}

Json JsonOf(const Line& line) {
  const DeviceInfo& d = line.info;
  Json json = Json::Object();
  json.Set("name", d.name)
      .Set("description", d.description)
      .Set("backend", d.backend)
      .Set("type", std::string(KindName(d.kind)))
      .Set("memory_free", d.memory_free)
      .Set("memory_total", d.memory_total);
  if (!line.why_not.empty()) json.Set("error", line.why_not);
  if (!line.profile) return json;
  const LatencyModel& m = line.profile->latency;
  const DeviceCosts& its = m.devices.front();
  json.Set("difference", line.profile->difference)
      .Set("launch_seconds", its.launch)
      .Set("call_seconds", its.calls)
      .Set("device", JsonOf(its.compute))
      .Set("host", JsonOf(m.host))
      .Set("copy", JsonOf(its.copy))
      .Set("disk", m.disk != Cost{} ? JsonOf(m.disk) : Json())
      .Set("copies_from_pinned_memory", line.profile->from_pinned)
      .Set("host_beside", m.host_beside)
      .Set("copy_beside", its.copy_beside);
  return json;
}

// Writes the first measured device, and the others of its backend; another backend may have the
// same devices again.
Status WriteProfile(const DevicesOptions& options, const std::vector<Line>& lines) {
  LatencyFile file;
  file.sources.emplace_back("all", "measured");
  std::string backend;
  for (const Line& line : lines) {
    if (line.info.kind == DeviceKind::kCpu) file.machine = line.info.description;
    if (!line.profile) continue;
    const LatencyModel& its = line.profile->latency;
    if (file.devices.empty()) {
      file.model = its;
      backend = line.info.backend;
    } else if (line.info.backend == backend) {
      file.model.host_beside = std::max(file.model.host_beside, its.host_beside);
      file.model.devices.push_back(its.devices.front());
    } else {
      continue;
    }
    file.devices.push_back(line.info.name);
  }
  if (!file.devices.empty()) return WriteLatency(options.output, file);
  return Fail(Errc::kDevice, "no device could be measured: {} is not written",
              options.output.text());
}

Status Run(const DevicesOptions& options) {
  std::vector<Line> lines;
  for (DeviceInfo& info : ListDevices()) lines.push_back({.info = std::move(info)});
  for (Line& line : lines) {
    if (!options.profile || line.info.kind == DeviceKind::kCpu) continue;
    Result<DeviceProfile> profile = ProfileDevice(
        line.info,
        {.threads = options.threads, .model = options.model, .cost_folder = CacheFolder()});
    if (profile) {
      line.profile = *profile;
    } else {
      line.why_not = profile.error().message;
    }
  }
  if (!options.output.empty()) TRY_STATUS(WriteProfile(options, lines));
  Output output(STDOUT_FILENO);
  if (options.json) {
    Json array = Json::Array();
    for (const Line& line : lines) array.Push(JsonOf(line));
    Json object = Json::Object();
    object.Set("devices", std::move(array));
    return output.Write(object.Dump() + "\n");
  }
  std::string text;
  for (const Line& line : lines) text += TextOf(line);
  return output.Write(text);
}

}  // namespace

void AddDevices(CommandLine& line) {
  auto options = std::make_shared<DevicesOptions>();
  Flags flags =
      line.AddCommand(CommandNamed("devices"), [options] { return ExitCode(Run(*options)); });
  const Flag profile =
      flags.AddSwitch("--profile", options->profile,
                      "measure what experts and their copies cost, on the device and on the CPU");
  flags
      .Add("MODEL", options->model,
           "GGUF file whose experts and whose disk are measured (default: random weights, no disk)")
      .Needs(profile);
  flags.Add("-t,--threads", options->threads, "compute threads (default: physical cores)")
      .Type("N");
  flags
      .AddOutput("-o,--output", options->output,
                 "write the costs of the first device and of others of its backend, for "
                 "--latency-model and 'moestro sim --machine'")
      .Needs(profile);
  flags.AddSwitch("--json", options->json, "machine-readable output: one JSON object");
  flags.Footer("A software device computes on the CPU: --device auto never takes it.");
}

}  // namespace moestro
