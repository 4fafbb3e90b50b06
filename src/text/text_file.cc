// SPDX-License-Identifier: MIT
#include "text/text_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/utf8.h"

namespace moestro {
namespace {

// Holds back the last two bytes until the end of the file: they may be the final line break.
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

}  // namespace moestro
