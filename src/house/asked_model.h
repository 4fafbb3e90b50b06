// SPDX-License-Identifier: MIT
// The two fields of a request's body by which a house chooses a model's process: the model's name
// and how long the model stays. All else in the body is the process's own matter. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/api_error.h"
#include "base/result.h"

namespace moestro {

struct AskedModel {
  std::string model = {};                 // empty: the body names none
  std::optional<double> keep_alive = {};  // seconds; negative: for ever
  bool has_text = false;                  // a prompt, messages or an input that is not empty
};

// 400: the body is no JSON object, or one of the fields has a wrong kind or value. The rest of the
// body is not looked at beyond where each value ends. Of equal keys the last counts. Time in
// proportion to the body, memory in proportion to nothing.
ApiResult<AskedModel> ReadAskedModel(std::string_view body);

// "5m", "1h30m", "90" (seconds), "0", "-1" or "forever" (negative: for ever). kUsage.
Result<double> ParseKeepAlive(std::string_view text);

}  // namespace moestro
