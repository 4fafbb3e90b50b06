// SPDX-License-Identifier: MIT
// A flag by its name and the text of its value, as sweeps turn them and files keep them.
#pragma once

#include <string>
#include <vector>

#include "base/format.h"

namespace moestro {

struct KnobSetting {
  std::string knob;  // without dashes
  std::string value;
  bool operator==(const KnobSetting&) const = default;
};
using KnobSettings = std::vector<KnobSetting>;  // each knob once

// "cache=25% prefetch=0"
inline std::string ToText(const KnobSettings& settings) {
  std::string text;
  for (const KnobSetting& s : settings) {
    text += Format("{}{}={}", text.empty() ? "" : " ", s.knob, s.value);
  }
  return text;
}

}  // namespace moestro
