// SPDX-License-Identifier: MIT
#include "memory/sequence_text.h"

#include <algorithm>

#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

// "name value" lines of a text that is not trusted.
std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view ChoiceName(std::string_view line) {
  return line.substr(0, std::min(line.find(' '), line.size()));
}

}  // namespace

void KvChoices::Add(std::string_view name, std::string value) {
  CHECK(!name.contains(' ') && !name.contains('\n'));
  // A device's name comes from its driver and may contain anything.
  std::ranges::replace(value, '\n', ' ');
  choices_.emplace_back(name, std::move(value));
}

std::string KvChoices::text() const {
  std::string text;
  for (const auto& [name, value] : choices_) text += Format("{} {}\n", name, value);
  return text;
}

std::string_view KvChoices::Find(std::string_view text, std::string_view name) {
  for (const std::string_view line : LinesOf(text)) {
    if (ChoiceName(line) == name) return line.substr(std::min(name.size() + 1, line.size()));
  }
  return {};
}

std::string KvChoices::Difference(std::string_view saved, std::string_view ours,
                                  std::string_view ignored) {
  const std::vector<std::string_view> theirs = LinesOf(saved);
  const std::vector<std::string_view> here = LinesOf(ours);
  const auto counts = [&](std::string_view line) {
    return ignored.empty() || ChoiceName(line) != ignored;
  };
  for (const std::string_view line : theirs) {
    if (!counts(line) || std::ranges::contains(here, line)) continue;
    const std::string_view name = ChoiceName(line);
    const std::string_view own = Find(ours, name);
    if (own.empty()) {
      return Format(
          "was saved with {}, and this run goes without; give the same flags, or name "
          "another file",
          Printable(line));
    }
    return Format(
        "was saved with {}, and this run has {} {}; give the same flags, or name another "
        "file",
        Printable(line), name, own);
  }
  for (const std::string_view line : here) {
    if (!counts(line) || std::ranges::contains(theirs, line)) continue;
    return Format(
        "was saved without {}, which this run has; give the same flags, or name another "
        "file",
        line);
  }
  return {};
}

namespace {

constexpr uint32_t kMaxNotes = 16U << 20;
constexpr uint32_t kMaxChoices = 64U << 10;

}  // namespace

Status SequenceText::CheckModel(const InputFile& file, const TextHome& home) const {
  if (model != home.origin.model) {
    return Fail(Errc::kInvalidRequest,
                "{} was saved with another model; name that model, or another file", file.path());
  }
  if (weights == home.origin.weights) return {};
  return Fail(Errc::kInvalidRequest,
              "{} was saved with other weights: a model with the same header, but not this one; "
              "name that model, or another file",
              file.path());
}

Status SequenceText::CheckSizes(const InputFile& file, const TextHome& home) const {
  if (notes_bytes > kMaxNotes || choices_bytes > kMaxChoices) {
    return file.Damaged("its texts are too long");
  }
  if (n_tokens <= home.n_ctx) return {};
  return Fail(Errc::kInvalidRequest, "{} holds {} tokens, the context {}; raise --ctx", file.path(),
              n_tokens, home.n_ctx);
}

Status SequenceText::CheckChoices(const InputFile& file, const TextHome& home) const {
  TRY(const std::string saved, file.Read(begin, choices_bytes));
  const std::string other = KvChoices::Difference(saved, home.origin.choices, kKernelsChoice);
  if (other.empty()) return {};
  return Fail(Errc::kInvalidRequest, "{} {}", file.path(), other);
}

Status SequenceText::WarnOfKernels(const InputFile& file, const TextHome& home) const {
  TRY(const std::string saved, file.Read(begin, choices_bytes));
  const std::string& ours = home.origin.choices;
  if (saved == ours) return {};
  LogWarning("{} was computed by other kernels ({}; here: {}): the text goes on, rounded otherwise",
             file.path(), Printable(KvChoices::Find(saved, kKernelsChoice)),
             KvChoices::Find(ours, kKernelsChoice));
  return {};
}

Result<SavedTokens> SequenceText::Read(const InputFile& file, const TextHome& home) const {
  SavedTokens saved;
  TRY(saved.notes, file.Read(notes_begin(), notes_bytes));
  TRY(const std::string bytes, file.Read(tokens_begin(), n_tokens * sizeof(Token)));
  saved.tokens.resize(n_tokens);
  std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(saved.tokens.data()));
  for (const Token t : saved.tokens) {
    if (t < 0 || static_cast<uint32_t>(t) >= home.n_vocab) {
      return file.Damaged(Format("token {} is outside the vocabulary", t));
    }
  }
  return saved;
}

Status CheckNotes(const std::string& notes) {
  if (notes.size() <= kMaxNotes) return {};
  return Fail(Errc::kInvalidRequest, "{} bytes of notes are more than a saved sequence takes ({})",
              notes.size(), kMaxNotes);
}

Status AddText(BinaryWriter& out, const TextHome& home, const std::string& notes,
               std::span<const Token> tokens) {
  TRY_STATUS(out.Add(home.origin.choices));
  TRY_STATUS(out.Add(notes));
  return out.Add({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
}

}  // namespace moestro
