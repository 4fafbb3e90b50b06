// SPDX-License-Identifier: MIT
#include "serve/ready_model.h"

#include <filesystem>
#include <system_error>

#include "base/input_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "chat/template.h"

namespace moestro {
namespace {

constexpr size_t kLongestTemplate = size_t{1} << 20;

Result<std::string> ReadTemplate(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) {
    return Fail(Errc::kUsage, "--chat-template {} is neither a file nor one of {}",
                Printable(path, 200), KnownTemplateNames());
  }
  const Result<std::string> text = ReadRegularFile(path, kLongestTemplate);
  if (!text || FindInvalidUtf8(*text) < text->size()) {
    return Fail(Errc::kUsage, "--chat-template {} cannot be read as text of at most {} bytes", path,
                kLongestTemplate);
  }
  return text;
}

}  // namespace

Result<std::string> ChosenTemplate(const std::string& asked, const Vocab& vocab) {
  if (asked.empty()) return vocab.chat_template();
  if (const auto known = KnownTemplate(asked)) return std::string(*known);
  TRY(std::string text, ReadTemplate(asked));
  if (WithoutBlanks(text).empty()) {
    LogWarning(
        "--chat-template {} is empty: conversations are written without the model's own template; "
        "leave the flag out to use that",
        Printable(asked, 200));
    return std::string();
  }
  const auto parsed = ChatTemplate::Parse(text, vocab.begin_text(), vocab.end_text());
  if (!parsed) {
    return Fail(Errc::kUsage, "--chat-template {} cannot be used: {}", asked,
                parsed.error().message);
  }
  return text;
}

}  // namespace moestro
