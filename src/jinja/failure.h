// SPDX-License-Identifier: MIT
// The exception that ends parsing and rendering early, inside of src/jinja alone: template.cc makes
// a Result of it.
#pragma once

#include <cstdint>
#include <exception>
#include <format>
#include <string>
#include <utility>

#include "base/text.h"

namespace moestro::jinja {

class Failure : public std::exception {
 public:
  enum class Kind : uint8_t {
    kSyntax,
    kRender,   // an error that Python would raise
    kRefusal,  // the template's own words
  };
  Failure(Kind kind, std::string words, uint32_t line = 0)
      : kind_(kind), line_(line), words_(std::move(words)) {}

  const char* what() const noexcept override { return words_.c_str(); }
  Kind kind() const { return kind_; }
  const std::string& words() const { return words_; }
  uint32_t line() const { return line_; }  // 0: not known
  void SetLine(uint32_t line) {
    if (line_ == 0) line_ = line;
  }

 private:
  Kind kind_;
  uint32_t line_;
  std::string words_;
};

// Throws the error of a rendering: Raise("'{}' is undefined", name).
template <class... Args>
[[noreturn]] void Raise(std::format_string<Args...> text, Args&&... args) {
  throw Failure(Failure::Kind::kRender, Format(text, std::forward<Args>(args)...));
}

}  // namespace moestro::jinja
