// SPDX-License-Identifier: MIT
#include "cli/device_flags.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/cache_folder.h"

namespace moestro {

void AddDeviceFlags(Flags flags, DeviceOptions& options) {
  options.cost_folder = CacheFolder();
  flags.Group("Device");
  flags
      .Add("--device", options.name,
           "what computes beside the CPU: names that 'moestro devices' lists, with commas between "
           "them, auto (the GPUs, if there are any) or cpu; the dense part goes to the first")
      .Type("NAME,...")
      .ShowDefault();
  flags.AddParsed(
      "--vram", "SIZE,...",
      "memory there for experts and the dense part, for example 6G: one size for every device, or "
      "each one's (default: what is free, less a margin)",
      [&options](const std::string& text) -> Status {
        options.vram.clear();
        for (size_t at = 0; at <= text.size();) {
          const size_t comma = std::min(text.find(',', at), text.size());
          TRY(const uint64_t bytes, ParseBytes(text.substr(at, comma - at)));
          at = comma + 1;
          if (bytes == 0) {
            return Fail(Errc::kUsage, "0 bytes there hold nothing; --device cpu uses none");
          }
          options.vram.push_back(bytes);
        }
        return {};
      });
  flags.AddParsed(
      "--place", "auto|gpu-centric|cooperative|cpu",
      "where an expert is computed (default: auto)\nauto: where the layer is done soonest, by the "
      "measured costs\ngpu-centric: on a device; what they lack is copied to one\ncooperative: "
      "what a device has there, the rest on the CPU\ncpu: on the CPU",
      [&options](const std::string& text) -> Status {
        TRY(options.place, ParsePlaceMode(text));
        return {};
      });
  flags.AddParsed(
      "--dense", "auto|cpu",
      "where the dense part, keys and values are (default: auto)\nauto: on the first device "
      "if it has room\ncpu: in memory",
      [&options](const std::string& text) -> Status {
        options.dense_on_cpu = text == "cpu";
        if (text == "cpu" || text == "auto") return {};
        return Fail(Errc::kUsage, "'{}' is no place for the dense part: auto, cpu", text);
      });
  flags.AddParsed("--tiers", "inclusive|exclusive",
                  "whether memory keeps experts that have come to a device (default: inclusive)",
                  [&options](const std::string& text) -> Status {
                    TRY(options.tiers, ParseTiers(text));
                    return {};
                  });
  flags
      .Add("--latency-model", options.latency_model,
           "costs to place by, as 'moestro devices MODEL --profile -o FILE' writes them (default: "
           "measured at the first start and followed); with a file, equal runs give equal bits")
      .Type("FILE");
}

}  // namespace moestro
