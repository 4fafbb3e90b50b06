// SPDX-License-Identifier: MIT
#include "cli/text_input.h"

#include <stdio.h>
#include <sys/types.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>

#include "base/bytes.h"
#include "base/utf8.h"

namespace moestro {
namespace {

constexpr size_t kLongestText = 64 * kMiB;

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

Result<std::string> ReadAll(std::FILE* file, const std::string& name) {
  std::string text;
  std::array<char, 65536> buffer{};
  while (true) {
    const size_t n = std::fread(buffer.data(), 1, buffer.size(), file);
    text.append(buffer.data(), n);
    if (text.size() > kLongestText) {
      return Fail(Errc::kInvalidRequest, "{}: over {}, which no context holds", name,
                  FormatBytes(kLongestText));
    }
    if (n < buffer.size()) break;
  }
  if (std::ferror(file) != 0) {
    return Fail(Errc::kIo, "cannot read {}: {}", name, std::strerror(errno));
  }
  if (const size_t bad = FindInvalidUtf8(text); bad < text.size()) {
    return Fail(Errc::kInvalidRequest, "{}: not UTF-8 text at byte {}; convert it first", name,
                bad);
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
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

Result<std::string> ReadTextFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (!file) return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  return ReadAll(file.get(), path);
}

Result<std::string> ReadStdin() { return ReadAll(stdin, "standard input"); }

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
