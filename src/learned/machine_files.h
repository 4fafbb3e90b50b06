// SPDX-License-Identifier: MIT
// Costs of a machine's lanes and its rates, as JSON files that people can read and write for a
// machine that they do not have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "core/machine.h"
#include "decide/devices/latency_model.h"

namespace moestro {

// Costs of a machine's lanes, as a file: JSON, so that people can read it and write one of a
// machine that they do not have. docs/devices.md describes it. Thread rule: none, calls share
// nothing but the file system.

struct LatencyFile {
  std::string machine = {};  // for people
  // Names of model.devices, all different.
  std::vector<std::string> devices = {};
  LatencyModel model = {};
  // [device] True: a remote host, whose experts stay the same. Its copies are the upload.
  std::vector<bool> is_remote = {};
  std::vector<uint64_t> memory = {};  // [device] bytes; 0: the file does not say
  // Cost of a layer's part beside its experts (attention, norms, router) on the processor that
  // computes it, by bytes of dense weights. 0 where the file has none.
  Cost dense = {};
  // Names of values, and their sources: "copy.gb_per_s", "measured". Free text, for people.
  std::vector<std::pair<std::string, std::string>> sources = {};
};

// The file's costs of one device, by its name. If the device is the only one in use (`is_only`) and
// the file has one device, that one's costs, whatever its name. kInvalidRequest, naming the device:
// the file does not have it.
Result<LatencyModel> CostsOf(const LatencyFile& file, const std::string& device, bool is_only);

// Writes values with six digits, more than any measurement is worth. Values that have been through
// a file once come back bit for bit, so a run that reads its measured costs from the file can be
// repeated. `path` holds the old file or the whole new one. kInvalidRequest as CheckLatency(); kIo,
// naming the file and the reason. REQUIRES: every device of the model has a name.
Status WriteLatency(const OutputPath& path, const LatencyFile& file);

// Trusts nothing in the file: the result passes CheckLatency(). kIo: cannot be read; kUnsupported:
// a newer format; kInvalidFile: anything else, unknown keys, too, since a misspelt one would be a
// cost of 0. The message names the file and the faulty field.
Result<LatencyFile> ReadLatency(const std::string& path);

// Rates of a machine (core/machine.h), as a JSON file that people can read and write for a
// machine that they do not have; docs/plan.md describes it. Rates are also kept from start to
// start, in a folder of the user's cache: a fault of the folder or of a file costs a measurement
// and is no error.
//
// Thread rule: none, calls share nothing but the file system.

// `path` holds the old file or the whole new one. kIo, naming the file and the reason.
Status WriteRates(const OutputPath& path, const MachineRates& rates);
// The same with devices: their names, memory, costs and the border alone.
Status WriteMachine(const OutputPath& path, const MachineRates& rates, const LatencyFile& devices);

// Trusts nothing in the file. kIo: cannot be read; kUnsupported: a newer format; kInvalidFile:
// anything else, a value out of range or a type that comes twice, too. The message names the file.
Result<MachineRates> ReadRates(const std::string& path);
// The devices of such a file; none: it has no 'device'.
Result<LatencyFile> ReadDevices(const std::string& path);

// Conditions of kept rates: a processor with so many threads, and the disk of a folder.
struct RatesKey {
  std::string cpu = {};  // the processor's name and its threads
  uint64_t disk = 0;     // the file system's device number
};

// Rates that were kept for exactly this key; nullopt: none are kept, or `folder` is empty.
std::optional<MachineRates> KeptRates(const std::string& folder, const RatesKey& key);
// Keeps `rates` in place of older ones. Returns the rates that KeptRates() will give: the file's
// units round a rate's last bit, and a plan of the first start is to be that of later ones.
MachineRates KeepRates(const std::string& folder, const RatesKey& key, const MachineRates& rates);

}  // namespace moestro
