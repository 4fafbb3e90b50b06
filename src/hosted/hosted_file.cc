// SPDX-License-Identifier: MIT
#include "hosted/hosted_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/binary_file.h"
#include "base/log.h"
#include "memory/kv_choices.h"

namespace moestro {
namespace {

constexpr FileFormat kHostedFormat{.magic = "MOEHOSTS",
                                   .version = 1,
                                   .oldest = 1,
                                   .header_bytes = 48,
                                   .what = "a saved sequence of the hosted engine",
                                   .origin = "save one with 'moestro run --session'",
                                   .remedy = "start a new one"};
constexpr uint32_t kMaxNotes = 16U << 20;
constexpr uint32_t kMaxChoices = 64U << 10;

struct Header {
  uint64_t model = 0;
  uint64_t weights = 0;
  uint32_t n_tokens = 0;
  uint32_t notes_bytes = 0;
  uint32_t choices_bytes = 0;
  uint64_t state_bytes = 0;

  uint64_t notes_begin() const { return kHostedFormat.header_bytes + choices_bytes; }
  uint64_t tokens_begin() const { return notes_begin() + notes_bytes; }
  uint64_t state_begin() const { return tokens_begin() + uint64_t{n_tokens} * sizeof(Token); }
};

Result<Header> ReadHeaderOf(const InputFile& file, const HostedHome& home) {
  TRY(const std::string bytes, file.ReadHeader());
  Decoder in(bytes);
  Header header;
  header.model = in.Take<uint64_t>();
  header.weights = in.Take<uint64_t>();
  header.n_tokens = in.Take<uint32_t>();
  header.notes_bytes = in.Take<uint32_t>();
  header.choices_bytes = in.Take<uint32_t>();
  header.state_bytes = in.Take<uint64_t>();
  if (header.model != home.origin.model) {
    return Fail(Errc::kInvalidRequest,
                "{} was saved with another model; name that model, or another file", file.path());
  }
  if (header.weights != home.origin.weights) {
    return Fail(Errc::kInvalidRequest,
                "{} was saved with other weights of this model; name those, or another file",
                file.path());
  }
  if (header.notes_bytes > kMaxNotes || header.choices_bytes > kMaxChoices) {
    return file.Damaged("its texts are too long");
  }
  if (header.n_tokens > home.n_ctx) {
    return Fail(Errc::kInvalidRequest, "{} has {} tokens, and the context {}; raise --ctx",
                file.path(), header.n_tokens, home.n_ctx);
  }
  const uint64_t rest = file.size() - std::min<uint64_t>(file.size(), header.state_begin());
  if (rest < kChecksumBytes || rest - kChecksumBytes != header.state_bytes) {
    return file.CutShort("its header");
  }
  TRY(const std::string choices, file.Read(kHostedFormat.header_bytes, header.choices_bytes));
  if (const std::string differs =
          KvChoices::Difference(choices, home.origin.choices, kKernelsChoice);
      !differs.empty()) {
    return Fail(Errc::kInvalidRequest, "{} {}", file.path(), differs);
  }
  if (choices != home.origin.choices) {
    LogWarning("{} was saved with other kernels: the text may go on a little otherwise",
               file.path());
  }
  return header;
}

Result<SavedTokens> ReadText(const InputFile& file, const Header& header, const HostedHome& home) {
  SavedTokens saved;
  TRY(saved.notes, file.Read(header.notes_begin(), header.notes_bytes));
  TRY(const std::string bytes,
      file.Read(header.tokens_begin(), size_t{header.n_tokens} * sizeof(Token)));
  saved.tokens.resize(header.n_tokens);
  if (!bytes.empty()) std::memcpy(saved.tokens.data(), bytes.data(), bytes.size());
  for (const Token token : saved.tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= home.n_vocab) {
      return file.Damaged("it has a token outside the vocabulary");
    }
  }
  return saved;
}

}  // namespace

Status WriteHosted(const OutputPath& path, const HostedHome& home, std::span<const Token> tokens,
                   const std::string& notes, std::span<const uint8_t> state) {
  if (notes.size() > kMaxNotes) {
    return Fail(Errc::kInvalidRequest,
                "{} bytes of notes are more than a saved sequence takes ({})", notes.size(),
                kMaxNotes);
  }
  TRY(BinaryWriter out, BinaryWriter::Create(path, FileReaders::kOwner));
  std::string header = BeginHeader(kHostedFormat);
  AppendNumber(header, home.origin.model);
  AppendNumber(header, home.origin.weights);
  AppendNumber(header, static_cast<uint32_t>(tokens.size()));
  AppendNumber(header, static_cast<uint32_t>(notes.size()));
  AppendNumber(header, static_cast<uint32_t>(home.origin.choices.size()));
  AppendNumber(header, uint64_t{state.size()});
  TRY_STATUS(out.Add(header));
  TRY_STATUS(out.Add(home.origin.choices));
  TRY_STATUS(out.Add(notes));
  TRY_STATUS(out.Add({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()}));
  TRY_STATUS(out.Add({reinterpret_cast<const char*>(state.data()), state.size()}));
  return out.Finish();
}

Result<SavedTokens> PeekHosted(const std::string& path, const HostedHome& home) {
  TRY(const InputFile file, InputFile::Open(path, kHostedFormat));
  TRY(const Header header, ReadHeaderOf(file, home));
  return ReadText(file, header, home);
}

Result<HostedText> ReadHosted(const std::string& path, const HostedHome& home) {
  TRY(const InputFile file, InputFile::Open(path, kHostedFormat));
  TRY(const Header header, ReadHeaderOf(file, home));
  TRY_STATUS(file.CheckSum());
  HostedText read;
  TRY(read.text, ReadText(file, header, home));
  TRY(const std::string bytes, file.Read(header.state_begin(), header.state_bytes));
  read.state.assign(bytes.begin(), bytes.end());
  return read;
}

}  // namespace moestro
