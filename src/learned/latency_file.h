// SPDX-License-Identifier: MIT
// Costs of a machine's lanes, as a file: JSON, so that people can read it and write one of a
// machine that they do not have. docs/devices.md describes it. Thread rule: none, calls share
// nothing but the file system.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/output_path.h"
#include "base/result.h"
#include "decide/devices/latency_model.h"

namespace moestro {

struct LatencyFile {
  std::string machine = {};  // for people
  // Names of model.devices, all different.
  std::vector<std::string> devices = {};
  LatencyModel model = {};
  // [device] True: a remote host, whose experts stay the same. Its copies are the upload.
  std::vector<bool> is_remote = {};
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

}  // namespace moestro
