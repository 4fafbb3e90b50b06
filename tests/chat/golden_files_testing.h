// SPDX-License-Identifier: MIT
// Readers of the JSON files that templates are held to.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/json.h"

namespace moestro {

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Json ReadJson(const std::filesystem::path& path) {
  auto parsed = Json::Parse(ReadText(path));
  EXPECT_TRUE(parsed) << path;
  return parsed ? *std::move(parsed) : Json();
}

// Empty where there is no such text.
inline std::string TextOf(JsonView object, std::string_view key) {
  const auto value = object.Find(key);
  return value ? value->text().value_or("") : "";
}

}  // namespace moestro
