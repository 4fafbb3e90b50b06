// SPDX-License-Identifier: MIT
// Rates of a machine (core/machine.h), as a JSON file that people can read and write for a
// machine that they do not have; docs/plan.md describes it. Rates are also kept from start to
// start, in a folder of the user's cache: a fault of the folder or of a file costs a measurement
// and is no error.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/output_path.h"
#include "base/result.h"
#include "core/machine.h"

namespace moestro {

// `path` holds the old file or the whole new one. kIo, naming the file and the reason.
Status WriteRates(const OutputPath& path, const MachineRates& rates);

// Trusts nothing in the file. kIo: cannot be read; kUnsupported: a newer format; kInvalidFile:
// anything else, a value out of range or a type that comes twice, too. The message names the file.
Result<MachineRates> ReadRates(const std::string& path);

// Conditions of kept rates: a processor with so many threads, and the disk of a folder.
struct RatesKey {
  std::string cpu = {};  // the processor's name and its threads
  uint64_t disk = 0;     // the file system's device number
};

// Rates that were kept for exactly this key; nullopt: none are kept, or `folder` is empty.
std::optional<MachineRates> KeptRates(const std::string& folder, const RatesKey& key);
// Keeps `rates` in place of older ones.
void KeepRates(const std::string& folder, const RatesKey& key, const MachineRates& rates);

}  // namespace moestro
