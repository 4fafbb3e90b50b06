// SPDX-License-Identifier: MIT
#include "offline/record/text_parts.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <utility>

#include "base/hash.h"
#include "model/vocab.h"
#include "text/span_corruption.h"
#include "text/text_file.h"
#include "text/text_tokens.h"

namespace moestro {

namespace {

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// Sources and targets, a part each.
Result<CutTexts> ReadSpans(const Vocab& vocab, const std::vector<std::string>& paths, uint32_t most,
                           const EngineOptions& options, const ReadsTexts& model) {
  TRY(const SpanRules rules, FindSpanRules(vocab, *model.encoder, options, model.n_ctx));
  CutTexts all;
  for (const std::string& path : paths) {
    TRY(TextSource source, OpenText(path));
    TRY(SpanText spans, ReadSpanText(vocab, std::move(source), path, most, options, rules));
    for (const SpanWindow& window : spans.windows) {
      all.parts.push_back(
          {.text = all.texts.size(), .begin = window.begin, .length = window.length});
    }
    all.texts.push_back({.name = NameOf(path), .tokens = std::move(spans.tokens)});
  }
  return all;
}

}  // namespace

Result<CutTexts> ReadTextParts(const std::vector<std::string>& paths, uint32_t most,
                               const EngineOptions& options, const ReadsTexts& model) {
  CutTexts all;
  if (paths.empty()) return all;
  TRY(const Vocab vocab, Vocab::Load(model.file));
  if (model.encoder) return ReadSpans(vocab, paths, most, options, model);
  for (const std::string& path : paths) {
    TRY(TextSource source, OpenText(path));
    TRY(std::vector<Token> tokens, TokenizeText(vocab, std::move(source), path, most, options));
    all.texts.push_back({.name = NameOf(path), .tokens = std::move(tokens)});
  }
  all.parts = CutIntoParts(all.texts, model.n_ctx);
  return all;
}

void PutFirst(NamedTokens text, CutTexts& all) {
  for (TextSlice& part : all.parts) ++part.text;
  all.parts.insert(all.parts.begin(), {.text = 0, .begin = 0, .length = text.tokens.size()});
  all.texts.insert(all.texts.begin(), std::move(text));
}

std::vector<TextSlice> CutIntoParts(std::span<const NamedTokens> texts, size_t n_ctx) {
  std::vector<TextSlice> parts;
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t tokens = texts[i].tokens.size();
    for (size_t begin = 0; begin < tokens; begin += n_ctx) {
      parts.push_back({.text = i, .begin = begin, .length = std::min(n_ctx, tokens - begin)});
    }
  }
  return parts;
}

uint64_t HashOf(std::span<const NamedTokens> texts, std::span<const TextSlice> parts) {
  Fnv1a hash;
  for (const TextSlice& part : parts) {
    hash.AddNumber(uint64_t{part.length});
    for (const Token token : std::span(texts[part.text].tokens).subspan(part.begin, part.length)) {
      hash.AddNumber(std::bit_cast<uint32_t>(token));
    }
  }
  return hash.value();
}

uint64_t TokensOf(std::span<const TextSlice> parts) {
  uint64_t tokens = 0;
  for (const TextSlice& part : parts) tokens += part.length;
  return tokens;
}

Result<ShardInfo> TakeShard(const ShardRequest& request, std::span<const NamedTokens> texts,
                            std::vector<TextSlice>& parts) {
  if (parts.empty()) {
    return Fail(Errc::kInvalidRequest, "no token to learn from; give a longer text");
  }
  ShardInfo info{.command = request.command,
                 .shard = request.shard,
                 .text_hash = HashOf(texts, parts),
                 .windows = parts.size()};
  const WindowRange range = info.range();
  parts.erase(parts.begin() + static_cast<ptrdiff_t>(range.end), parts.end());
  parts.erase(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(range.begin));
  return info;
}

Status ForEachPart(std::span<const NamedTokens> texts, std::span<const TextSlice> parts,
                   const Progress& progress,
                   const std::function<Status(std::span<const Token> part)>& evaluate) {
  const uint64_t total = TokensOf(parts);
  uint64_t done = 0;
  for (const TextSlice& part : parts) {
    const NamedTokens& text = texts[part.text];
    TRY_STATUS(evaluate(std::span(text.tokens).subspan(part.begin, part.length)));
    done += part.length;
    if (progress) progress(text.name.c_str(), done, total);
  }
  return {};
}

}  // namespace moestro
