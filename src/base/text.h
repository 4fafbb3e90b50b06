// SPDX-License-Identifier: MIT
// Small operations on text. Letters are those of ASCII.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

// `text` without spaces, tabs and ends of lines around it.
std::string_view WithoutBlanks(std::string_view text);

std::string LowerCase(std::string_view text);
std::string UpperCase(std::string_view text);

// Large and small letters are alike. False if `text` is nothing but the ending.
bool IsNamedWith(std::string_view text, std::string_view ending);

// The files of a model that is named by its first part, name-00001-of-00003.gguf; for other names
// `path` alone.
std::vector<std::string> PartsOfSplit(const std::string& path);

// "a, b, c".
std::string Joined(std::span<const std::string> parts, std::string_view between = ", ");

}  // namespace moestro
