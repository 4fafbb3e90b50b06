// SPDX-License-Identifier: MIT
#include "commands/text_input.h"

#include <poll.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>

namespace moestro {
namespace {

std::optional<char> SimpleEscape(char letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case '\\':
    case '"':
    case '\'':
      return letter;
    default:
      return std::nullopt;
  }
}

std::optional<char> HexEscape(std::string_view digits) {
  if (digits.size() < 2) return std::nullopt;
  unsigned value = 0;
  const char* end = digits.begin() + 2;
  const auto [stop, error] = std::from_chars(digits.begin(), end, value, 16);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return static_cast<char>(value);
}

}  // namespace

std::string ProcessEscapes(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      if (const auto simple = SimpleEscape(text[i + 1])) {
        result += *simple;
        i += 1;
        continue;
      }
      const auto hex = text[i + 1] == 'x' ? HexEscape(text.substr(i + 2)) : std::nullopt;
      if (hex) {
        result += *hex;
        i += 3;
        continue;
      }
    }
    result += text[i];
  }
  return result;
}

bool HasInput() {
  if (isatty(STDIN_FILENO) == 0) return true;
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return ::poll(&input, 1, 0) != 0;
}

std::optional<std::string> ReadLine() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t n = getline(&line, &capacity, stdin);
  const std::unique_ptr<char, void (*)(void*)> owner(line, &std::free);
  if (n < 0) return std::nullopt;
  std::string_view text(line, static_cast<size_t>(n));
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace moestro
