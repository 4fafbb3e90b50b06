// SPDX-License-Identifier: MIT
#include "memory/sequence_text.h"

#include <algorithm>

#include "base/format.h"
#include "base/log.h"
#include "base/printable.h"
#include "memory/kv_choices.h"

namespace moestro {
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
