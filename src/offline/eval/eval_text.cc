// SPDX-License-Identifier: MIT
#include "offline/eval/eval_text.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/hash.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/text.h"
#include "model/vocab.h"
#include "text/span_corruption.h"
#include "text/text_tokens.h"

namespace moestro {
namespace {

// Cuts the last text into windows until `most` tokens are evaluated in all.
void CutIntoWindows(EvalText& text, uint64_t most) {
  const size_t tokens = text.texts.back().size();
  uint64_t left = most - text.n_evaluated();
  for (size_t begin = 0; begin < tokens && left > 0; begin += text.n_ctx) {
    const size_t whole = std::min<size_t>(text.n_ctx, tokens - begin);
    if (whole < text.score_from + size_t{2}) return;
    const uint64_t evaluated = std::min<uint64_t>(left, whole - text.score_from - 1);
    text.windows.push_back({.text = text.texts.size() - 1,
                            .begin = begin,
                            .length = static_cast<size_t>(text.score_from + evaluated + 1),
                            .first = text.score_from});
    left -= evaluated;
  }
}

// Texts as sources and targets until `most` tokens of targets are evaluated in all.
Status AppendSpans(const Vocab& vocab, const EncoderSpec& encoder, const TextRequest& request,
                   const EngineOptions& options, EvalText& text) {
  // A target has more than an eighth of a text's tokens.
  constexpr uint64_t kTextPerTarget = 8;
  TRY(const SpanRules rules, FindSpanRules(vocab, encoder, options, text.n_ctx));
  const uint64_t most = request.tokens > 0 ? request.tokens : UINT64_MAX;
  for (const std::string& path : request.paths) {
    TRY(TextSource source, OpenText(path));
    uint64_t left = most - text.n_evaluated();
    if (left == 0) continue;  // opened all the same, because every named text must exist
    const uint64_t wanted = request.tokens > 0 ? left * kTextPerTarget + text.n_ctx : 0;
    TRY(SpanText spans, ReadSpanText(vocab, std::move(source), path, wanted, options, rules));
    for (const SpanWindow& window : spans.windows) {
      if (left == 0) break;
      const uint64_t evaluated = std::min<uint64_t>(left, window.length - window.n_source - 1);
      text.windows.push_back({.text = text.texts.size(),
                              .begin = window.begin,
                              .length = window.n_source + evaluated + 1,
                              .first = window.n_source,
                              .together = window.n_source + 1});
      left -= evaluated;
    }
    text.texts.push_back(std::move(spans.tokens));
  }
  if (!text.windows.empty()) return {};
  return Fail(Errc::kInvalidRequest,
              "{}: no token to evaluate in sources of {} and sequences of {} tokens; give a longer "
              "text, or raise --ctx",
              request.paths.front(), rules.limits.source, text.n_ctx);
}

}  // namespace

uint64_t EvalText::n_evaluated() const {
  uint64_t n = 0;
  for (const Window& window : windows) n += window.n_evaluated();
  return n;
}

uint64_t EvalText::n_blocks(size_t block_tokens) const {
  uint64_t n = 0;
  for (const Window& window : windows) {
    n += (window.n_evaluated() + block_tokens - 1) / block_tokens;
  }
  return n;
}

uint64_t EvalText::Hash() const {
  Fnv1a hash;
  hash.AddNumber(score_from);
  for (const Window& window : windows) {
    hash.AddNumber(uint64_t{window.length});
    for (const Token token : tokens_of(window)) hash.AddNumber(std::bit_cast<uint32_t>(token));
  }
  return hash.value();
}

Result<EvalText> ReadEvalText(const TextModel& model, const TextRequest& request,
                              const EngineOptions& options) {
  EvalText text{.n_ctx = std::min(options.ctx, model.n_ctx_train),
                .n_vocab = model.n_vocab,
                .score_from = request.score_from};
  if (text.n_ctx < uint64_t{request.score_from} + 2) {
    return Fail(Errc::kInvalidRequest,
                "a context of {} has no token after position {}; raise --ctx (this model allows "
                "{}) or lower --score-from",
                text.n_ctx, request.score_from, model.n_ctx_train);
  }
  if (model.encoder && request.score_from > 0) {
    return Fail(Errc::kUsage,
                "--score-from is a position of a text, and this model has an encoder: all of each "
                "target is evaluated");
  }
  TRY(const Vocab vocab, Vocab::Load(model.gguf));
  if (model.encoder) {
    TRY_STATUS(AppendSpans(vocab, *model.encoder, request, options, text));
    return text;
  }
  const std::vector<Token> begin = vocab.begin_tokens();
  const uint64_t most = request.tokens > 0 ? request.tokens : UINT64_MAX;
  for (const std::string& path : request.paths) {
    TRY(TextSource source, OpenText(path));
    const uint64_t left = most - text.n_evaluated();
    if (left == 0) continue;  // opened all the same, because every named text must exist
    // Tokens to read: whole windows that hold at least the missing positions.
    const uint64_t per_window = text.n_ctx - request.score_from - 1;
    const uint64_t wanted = request.tokens > 0 ? (left / per_window + 1) * text.n_ctx : 0;
    TRY(std::vector<Token> tokens,
        TokenizeText(vocab, std::move(source), path, wanted, options, true));
    text.texts.push_back(std::move(tokens));
    CutIntoWindows(text, most);
  }
  if (text.windows.empty()) {
    return Fail(Errc::kInvalidRequest,
                "{}: no token to evaluate, a window needs at least {}; give a longer text",
                request.paths.front(), uint64_t{request.score_from} + 2);
  }
  if (request.score_from > 0 && begin.size() == 1) {
    for (const EvalText::Window& w : text.windows) text.texts[w.text][w.begin] = begin.front();
  }
  return text;
}

namespace {

constexpr FileFormat kReference{
    .magic = "MOEEXACT",
    .version = 2,
    .oldest = 2,
    .header_bytes = 8 + 4 + 4 * 8 + 2 * 4,
    .what = "a reference",
    .origin = "'moestro eval --against exact --reference FILE' writes one",
    .remedy = "delete it, and the next run writes it again",
};

}  // namespace

uint64_t ReferenceInfo::file_bytes() const {
  return kReference.header_bytes + rows * n_vocab * sizeof(float) + kChecksumBytes;
}

ReferenceInfo ReferenceInfo::Of(const ModelFile& model, const EvalText& text) {
  return {.fingerprint = model.id.fingerprint,
          .token_hash = text.Hash(),
          .rows = text.n_evaluated(),
          .n_vocab = text.n_vocab,
          .n_ctx = text.n_ctx};
}

Result<ReferenceWriter> ReferenceWriter::Create(const OutputPath& path, const ReferenceInfo& info) {
  TRY(const uint64_t room, FreeBytesFor(path));
  if (room < info.file_bytes()) {
    return Fail(Errc::kIo,
                "{}: the exact run's log-probabilities take {}, there are {}; evaluate fewer "
                "--tokens, or name another folder with --scratch",
                path.text(), FormatBytes(info.file_bytes()), FormatBytes(room));
  }
  TRY(BinaryWriter writer, BinaryWriter::Create(path));
  std::string header = BeginHeader(kReference);
  AppendNumber(header, info.fingerprint);
  AppendNumber(header, info.weights);
  AppendNumber(header, info.token_hash);
  AppendNumber(header, info.rows);
  AppendNumber(header, info.n_vocab);
  AppendNumber(header, info.n_ctx);
  TRY_STATUS(writer.Add(header));
  return ReferenceWriter(std::move(writer));
}

Status ReferenceWriter::Add(std::span<const float> row) {
  const auto bytes = std::as_bytes(row);
  return writer_.Add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<ReferenceReader> ReferenceReader::Open(const std::string& path, const ReferenceInfo& info) {
  TRY(InputFile file, InputFile::Open(path, kReference));
  TRY(const std::string header, file.ReadHeader());
  Decoder decoder(header);
  const auto fingerprint = decoder.Take<uint64_t>();
  const auto weights = decoder.Take<uint64_t>();
  const auto token_hash = decoder.Take<uint64_t>();
  const auto rows = decoder.Take<uint64_t>();
  const auto n_vocab = decoder.Take<uint32_t>();
  const auto n_ctx = decoder.Take<uint32_t>();
  const bool is_same_model = fingerprint == info.fingerprint && n_vocab == info.n_vocab;
  if (is_same_model && weights != info.weights) {
    return Fail(Errc::kInvalidRequest,
                "{}: a reference of other weights, of a model with the same header; name another "
                "file, or delete it and this run writes it again",
                path);
  }
  const bool is_same_text = token_hash == info.token_hash && rows == info.rows;
  if (!is_same_model || !is_same_text || n_ctx != info.n_ctx) {
    return Fail(
        Errc::kInvalidRequest,
        "{}: a reference of another {}; name another file, or delete it and this run "
        "writes it again",
        path,
        is_same_model ? (is_same_text ? "context" : "text, part of it or --score-from") : "model");
  }
  if (file.size() != info.file_bytes()) {
    return file.CutShort(Format("{} bytes", info.file_bytes()));
  }
  TRY_STATUS(file.CheckSum());
  return ReferenceReader(std::move(file), n_vocab);
}

Result<std::span<const float>> ReferenceReader::Row(uint64_t index) {
  const size_t bytes = row_.size() * sizeof(float);
  TRY(const std::string raw, file_.Read(kReference.header_bytes + index * bytes, bytes));
  std::memcpy(row_.data(), raw.data(), bytes);
  return std::span<const float>(row_);
}

Result<std::string> ScratchFolder(const std::string& asked, const std::string& text) {
  std::string folder = asked;
  if (asked.empty()) {
    folder = std::filesystem::path(text).parent_path().string();
    if (folder.empty() || access(folder.c_str(), W_OK) != 0) folder = ".";
  }
  TRY(const bool is_in_memory, LiesInMemory(folder));
  std::error_code unreadable;
  if (!std::filesystem::is_directory(folder, unreadable)) {
    return Fail(Errc::kIo, "{} is no folder; name one for scratch files with --scratch", folder);
  }
  if (access(folder.c_str(), W_OK) != 0) {
    return Fail(Errc::kIo, "cannot write into folder {}: {}; name another with --scratch", folder,
                std::strerror(errno));
  }
  if (asked.empty() && is_in_memory) {
    return Fail(Errc::kInvalidRequest,
                "scratch files would go to {}, which lies in memory; name a folder on a disk with "
                "--scratch (or this one, if it shall be so)",
                folder);
  }
  return folder;
}

}  // namespace moestro
