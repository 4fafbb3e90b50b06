// SPDX-License-Identifier: MIT
// Small operations on text. Letters are those of ASCII.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moestro {

// Without spaces, tabs and ends of lines around it.
std::string_view WithoutBlanks(std::string_view text);

std::string LowerCase(std::string_view text);
std::string UpperCase(std::string_view text);

// Large and small letters are alike. False if `text` is nothing but the ending.
bool IsNamedWith(std::string_view text, std::string_view ending);

// "a, b, c".
std::string Joined(std::span<const std::string> parts, std::string_view between = ", ");

}  // namespace moestro
