// SPDX-License-Identifier: MIT
#include "cli/text_input.h"

#include <stdio.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/utf8.h"

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

// Holds the last two bytes back until the end is seen: they may be the final line break.
class FileText {
 public:
  FileText(std::FILE* file, std::string name) : file_(file), name_(std::move(name)) {}

  Result<std::string> Read(size_t most) {
    std::string text = std::exchange(held_, {});
    while (!ended_ && text.size() < most + kHeld) {
      const size_t before = text.size();
      text.resize(most + kHeld);
      const size_t got = std::fread(text.data() + before, 1, text.size() - before, file_);
      text.resize(before + got);
      ended_ = got == 0;
    }
    if (std::ferror(file_) != 0) {
      return Fail(Errc::kIo, "cannot read {}: {}", name_, std::strerror(errno));
    }
    if (ended_ && !std::exchange(stripped_, true)) {
      if (text.ends_with('\n')) text.pop_back();
      if (text.ends_with('\r')) text.pop_back();
    }
    const size_t given = std::min(most, text.size());
    held_ = text.substr(given);
    text.resize(given);
    return text;
  }

 private:
  static constexpr size_t kHeld = 2;

  std::FILE* file_;
  std::string name_;
  std::string held_;
  bool ended_ = false;
  bool stripped_ = false;
};

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

Result<TextSource> OpenText(const std::string& path) {
  const std::shared_ptr<std::FILE> file(std::fopen(path.c_str(), "rbe"), [](std::FILE* f) {
    if (f != nullptr) std::fclose(f);
  });
  if (!file) return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  return [file, text = FileText(file.get(), path)](size_t most) mutable { return text.Read(most); };
}

TextSource StandardInput() {
  return
      [text = FileText(stdin, "standard input")](size_t most) mutable { return text.Read(most); };
}

Result<std::string> ReadSmallText(const std::string& path) {
  constexpr size_t kMostBytes = kMiB;
  TRY(const TextSource source, OpenText(path));
  TRY(std::string text, source(kMostBytes + 1));
  if (text.size() > kMostBytes) {
    return Fail(Errc::kInvalidRequest, "{}: over {}", path, FormatBytes(kMostBytes));
  }
  if (const size_t bad = FindInvalidUtf8(text); bad < text.size()) {
    return Fail(Errc::kInvalidRequest, "{}: not UTF-8 text at byte {}; convert it first", path,
                bad);
  }
  return text;
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
