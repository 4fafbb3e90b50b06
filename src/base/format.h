// SPDX-License-Identifier: MIT
// std::format with its engine in one unit. The text and its arguments are checked at each call,
// formatting runs in format.cc: instantiating std::format in each caller took half of the build's
// time (4.5 s against 1.1 s for a file of one call, g++ 16 -O2 -g).
#pragma once

#include <format>
#include <string>
#include <string_view>
#include <utility>

namespace moestro {

std::string FormatErased(std::string_view text, std::format_args args);

// Format("{} of {}", part, whole): the result of std::format().
template <class... Args>
std::string Format(std::format_string<Args...> text, Args&&... args) {
  return FormatErased(text.get(), std::make_format_args(args...));
}

}  // namespace moestro
