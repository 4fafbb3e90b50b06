// SPDX-License-Identifier: MIT
// What a machine's lanes cost, as a file: JSON, so that people can read it and write one of a
// machine that they do not have. docs/devices.md describes it. Thread rule: none, calls share
// nothing but the file system.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "decide/latency_model.h"

namespace moestro {

struct LatencyFile {
  std::string machine = {};  // for people
  std::string device = {};   // its name; empty: there is none, and what it would cost is 0
  LatencyModel model = {};
  // What a layer computes beside its experts (attention, norms, router), where that runs; by bytes
  // of dense weights. 0 where the file does not say.
  Cost dense = {};
  // Which value, and where it is from: "copy.gb_per_s", "measured". Free text, for people.
  std::vector<std::pair<std::string, std::string>> sources = {};

  bool has_device() const { return !device.empty(); }
};

// Values with six digits, more than any measurement is worth: what has been through a file once
// comes back bit for bit, so a run with what it has measured repeats with the file if it reads that
// first. `path` holds the old file or the whole new one. kInvalidRequest as CheckLatency(); kIo,
// naming the file and the reason.
Status WriteLatency(const std::string& path, const LatencyFile& file);

// Nothing in the file is trusted: what comes back passes CheckLatency(). kIo: cannot be read;
// kUnsupported: a newer format; kInvalidFile: anything else, unknown keys, too, since a misspelt
// one would be a cost of 0. The message names the file and what is wrong in it.
Result<LatencyFile> ReadLatency(const std::string& path);

}  // namespace moestro
