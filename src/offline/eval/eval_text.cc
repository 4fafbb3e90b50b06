// SPDX-License-Identifier: MIT
#include "offline/eval/eval_text.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/hash.h"
#include "model/vocab.h"
#include "text/span_corruption.h"
#include "text/text_file.h"
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

}  // namespace moestro
