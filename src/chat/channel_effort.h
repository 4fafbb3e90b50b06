// SPDX-License-Identifier: MIT
// The effort of models of channels: the amount of their thoughts.
#pragma once

#include <string>
#include <string_view>

namespace moestro {

// A template's arguments with an effort that models of channels have: low, medium or high. Such
// models always think, so no thoughts become few. Other values stay as they are. `arguments`: JSON
// text of an object; empty: none.
std::string WithChannelEffort(std::string_view arguments);

}  // namespace moestro
