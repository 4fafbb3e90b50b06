// SPDX-License-Identifier: MIT
// Measurements of a search so far, in a file, so that a search that was stopped goes on.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "offline/eval/eval_stats.h"
#include "offline/fit/fit_search.h"
#include "offline/fit/write_fitted.h"
#include "offline/weight_types.h"

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

// Files of a search for widths, kept until the search is done, so that a search that was stopped
// goes on.

class FitScratch {
 public:
  // `request` must outlive this. `base`: begin of the files' names, folder included.
  FitScratch(const FitRequest& request, std::string base)
      : request_(request), base_(std::move(base)) {}

  // A name for a file that Remove() will delete.
  std::string File(std::string_view what);
  // The path of the model with all experts at a width; written if the file does not exist.
  Result<std::string> ModelAt(const Width& width, size_t n_experts);
  // The path of low copies of these types; written if the file does not exist.
  Result<std::string> CopiesAt(const LowTypes& types);
  void Remove() const;

 private:
  const FitRequest& request_;
  std::string base_;
  std::vector<std::string> files_;
};

}  // namespace moestro
