// SPDX-License-Identifier: MIT
#include "cli/device_flags.h"

#include <string>

#include "base/bytes.h"
#include "base/cache_folder.h"

namespace moestro {

void AddDeviceFlags(Flags flags, DeviceOptions& options) {
  options.cost_folder = CacheFolder();
  flags.Group("Device");
  flags
      .Add("--device", options.name,
           "what computes beside the CPU: a name that 'moestro devices' lists, auto (a GPU, "
           "if there is one) or cpu")
      .Type("NAME")
      .ShowDefault();
  flags.AddParsed(
      "--vram", "SIZE",
      "memory there for experts and the dense part, for example 6G (default: what is free, "
      "less a margin)",
      [&options](const std::string& text) -> Status {
        TRY(options.vram_bytes, ParseBytes(text));
        if (options.vram_bytes > 0) return {};
        return Fail(Errc::kUsage, "0 bytes there hold nothing; --device cpu uses none");
      });
  flags.AddParsed(
      "--place", "auto|gpu-centric|cooperative|cpu",
      "where an expert is computed (default: auto)\nauto: where the layer is done soonest, by the "
      "measured costs\ngpu-centric: on the device; what it lacks is copied there\ncooperative: "
      "what "
      "the device has there, the rest on the CPU\ncpu: on the CPU",
      [&options](const std::string& text) -> Status {
        TRY(options.place, ParsePlaceMode(text));
        return {};
      });
  flags.AddParsed("--dense", "auto|cpu",
                  "where the dense part, keys and values are (default: auto)\nauto: on the device "
                  "if it has room\ncpu: in memory",
                  [&options](const std::string& text) -> Status {
                    options.dense_on_cpu = text == "cpu";
                    if (text == "cpu" || text == "auto") return {};
                    return Fail(Errc::kUsage, "'{}' is no place for the dense part: auto, cpu",
                                text);
                  });
  flags.AddParsed("--tiers", "inclusive|exclusive",
                  "whether memory keeps experts that have come to the device (default: inclusive)",
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
