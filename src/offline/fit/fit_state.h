// SPDX-License-Identifier: MIT
// Measurements of a search so far, in a file, so that a search that was stopped goes on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "offline/eval/eval_stats.h"

namespace moestro {

class FitState {
 public:
  // Reads `path` if it exists. `key` identifies what is measured: a file with another key counts as
  // absent, and is replaced. kIo.
  static Result<FitState> Open(const std::string& path, const std::string& key);

  std::optional<Estimate> Find(const std::string& name) const;
  // Keeps a measurement, which is on the disk when this returns. kIo.
  Status Add(const std::string& name, const Estimate& measured);

 private:
  FitState(std::string path, std::string key) : path_(std::move(path)), key_(std::move(key)) {}

  std::string path_;
  std::string key_;
  std::map<std::string, Estimate> measured_;
};

}  // namespace moestro
