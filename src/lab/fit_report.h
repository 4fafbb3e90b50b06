// SPDX-License-Identifier: MIT
// The report of `moestro fit` about its search: text, JSON, and the importances as a drawing.
#pragma once

#include <string>

#include "base/json.h"
#include "offline/fit/fit_search.h"

namespace moestro {

std::string DescribeFit(const FitRequest& request, const FitReport& report);
Json FitAsJson(const FitRequest& request, const FitReport& report);

// A heat map, layers down and experts across; experts at the lower width have a dot, experts that
// were not measured are empty. An SVG. REQUIRES: the report has importances.
std::string FitDrawing(const std::string& title, const FitReport& report);

}  // namespace moestro
