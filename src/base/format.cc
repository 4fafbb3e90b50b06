// SPDX-License-Identifier: MIT
#include "base/format.h"

namespace moestro {

std::string FormatErased(std::string_view text, std::format_args args) {
  return std::vformat(text, args);
}

}  // namespace moestro
