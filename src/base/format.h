// SPDX-License-Identifier: MIT
// std::format with its engine in one unit. The text and its arguments are checked where they stand,
// the work is done in format.cc: instantiating it in each caller took half of the build's time
// (4.5 s against 1.1 s for a file of one call, g++ 16 -O2 -g).
#pragma once

#include <format>
#include <string>
#include <string_view>
#include <utility>

namespace moestro {

std::string FormatErased(std::string_view text, std::format_args args);

// Format("{} of {}", part, whole): what std::format() returns.
template <class... Args>
std::string Format(std::format_string<Args...> text, Args&&... args) {
  return FormatErased(text.get(), std::make_format_args(args...));
}

}  // namespace moestro
