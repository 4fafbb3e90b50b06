// SPDX-License-Identifier: MIT
#include "lab/imatrix_report.h"

#include <cstdint>
#include <utility>

#include "base/format.h"
#include "lab/unvisited.h"

namespace moestro {

std::string DescribeImatrix(const std::string& path, const ImatrixReport& report) {
  return Format("importances {} tokens, in {}\n", report.tokens, path) +
         UnvisitedText(report.unvisited, report.experts);
}

Json ImatrixAsJson(const std::string& path, const ImatrixReport& report) {
  Json layers = Json::Array();
  for (const uint32_t unvisited : report.unvisited) layers.Push(unvisited);
  Json object = Json::Object();
  object.Set("imatrix", path)
      .Set("tokens", report.tokens)
      .Set("experts", report.experts)
      .Set("unvisited", std::move(layers));
  return object;
}

}  // namespace moestro
