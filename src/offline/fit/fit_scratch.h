// SPDX-License-Identifier: MIT
// The files of a search for widths that stay until it is done, so that one that was stopped goes
// on.
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
  // `request` must outlive this. `base`: what the names begin with, folder included.
  FitScratch(const FitRequest& request, std::string base)
      : request_(request), base_(std::move(base)) {}

  // A name for a file that Remove() takes away.
  std::string File(std::string_view what);
  // The path of the model with all experts at a width; written if it is not there.
  Result<std::string> ModelAt(const Width& width, size_t n_experts);
  // The path of low copies of these types; written if they are not there.
  Result<std::string> CopiesAt(const LowTypes& types);
  void Remove() const;

 private:
  const FitRequest& request_;
  std::string base_;
  std::vector<std::string> files_;
};

}  // namespace moestro
