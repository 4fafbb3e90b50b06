// SPDX-License-Identifier: MIT
// Files of a search for widths, kept until the search is done, so that a search that was stopped
// goes on.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "offline/fit/fit_search.h"
#include "offline/fit/write_fitted.h"
#include "offline/quantize/low_types.h"

namespace moestro {

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
