// SPDX-License-Identifier: MIT
#include "text/span_corruption.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "base/text.h"
#include "text/text_tokens.h"

namespace moestro {
namespace {

constexpr double kCutShare = 0.15;  // share of a text's tokens
constexpr double kSpanLength = 3.0;
constexpr size_t kShortestPiece = 2;  // one token that stays, and one that is cut out

// The numbers by which a piece of a text is divided.
struct Division {
  size_t cut = 0;    // tokens
  size_t spans = 0;  // spans of these tokens

  // REQUIRES: tokens >= kShortestPiece, sentinels >= 1.
  static Division Of(size_t tokens, size_t sentinels) {
    const auto share = static_cast<size_t>(std::lround(static_cast<double>(tokens) * kCutShare));
    const size_t cut = std::clamp<size_t>(share, 1, tokens - 1);
    const auto spans = static_cast<size_t>(std::lround(static_cast<double>(cut) / kSpanLength));
    const size_t most = std::min({cut, tokens - cut, sentinels});
    return {.cut = cut, .spans = std::clamp<size_t>(spans, 1, most)};
  }
  // Tokens of a source with its end, and of a target with its two ends.
  size_t source(size_t tokens) const { return tokens - cut + spans + 1; }
  size_t target() const { return cut + spans + 2; }
};

// `total` as a sum of `parts` numbers from 1 on, each such sum equally likely.
std::vector<size_t> RandomLengths(size_t total, size_t parts, std::mt19937_64& random) {
  std::vector<size_t> ends(total - 1);
  std::iota(ends.begin(), ends.end(), size_t{1});
  for (size_t i = 0; i + 1 < parts; ++i) {
    std::swap(ends[i], ends[i + random() % (ends.size() - i)]);
  }
  ends.resize(parts - 1);
  std::ranges::sort(ends);
  ends.push_back(total);
  std::vector<size_t> lengths;
  size_t begin = 0;
  for (const size_t end : ends) lengths.push_back(end - std::exchange(begin, end));
  return lengths;
}

// piece -> kept tokens and sentinels, source_end | target_begin, sentinels and cut tokens, end.
SpanWindow Append(std::span<const Token> piece, const SpanTokens& with, std::mt19937_64& random,
                  std::vector<Token>& tokens) {
  const Division division = Division::Of(piece.size(), with.sentinels.size());
  const std::vector<size_t> cut = RandomLengths(division.cut, division.spans, random);
  const std::vector<size_t> kept =
      RandomLengths(piece.size() - division.cut, division.spans, random);
  SpanWindow window{.begin = tokens.size()};
  std::vector<Token> target{with.target_begin};
  for (size_t i = 0; i < division.spans; ++i) {
    tokens.append_range(piece.first(kept[i]));
    tokens.push_back(with.sentinels[i]);
    target.push_back(with.sentinels[i]);
    target.append_range(piece.subspan(kept[i], cut[i]));
    piece = piece.subspan(kept[i] + cut[i]);
  }
  tokens.push_back(with.source_end);
  window.n_source = tokens.size() - window.begin;
  target.push_back(with.source_end);
  tokens.append_range(target);
  window.length = tokens.size() - window.begin;
  return window;
}

}  // namespace

Result<SpanTokens> FindSpanTokens(const Vocab& vocab, const EncoderSpec& encoder) {
  SpanTokens found{.source_end = encoder.source_end, .target_begin = encoder.target_begin};
  for (size_t i = 0; vocab.has_token(Format("<extra_id_{}>", i)); ++i) {
    TRY(const std::vector<Token> one, vocab.Tokenize(Format("<extra_id_{}>", i), false, true));
    if (one.size() != 1) break;
    found.sentinels.push_back(one.front());
  }
  if (!found.sentinels.empty()) return found;
  return Fail(Errc::kUnsupported,
              "the vocabulary has no tokens <extra_id_0>, ... to put in the place of spans; texts "
              "cannot become sources and targets");
}

size_t LongestSpanPiece(const SpanTokens& with, const SpanLimits& limits) {
  for (size_t tokens = limits.sequence; tokens >= kShortestPiece; --tokens) {
    const Division division = Division::Of(tokens, with.sentinels.size());
    const size_t source = division.source(tokens);
    if (source <= limits.source && source + division.target() <= limits.sequence) return tokens;
  }
  return 0;
}

SpanText CutSpans(std::span<const Token> text, const SpanTokens& with, const SpanLimits& limits) {
  SpanText cut;
  const size_t longest = LongestSpanPiece(with, limits);
  if (longest == 0) return cut;
  std::vector<Token> left(text.begin(), text.end());
  std::erase(left, with.source_end);
  std::mt19937_64 random(1);
  for (size_t begin = 0; begin + kShortestPiece <= left.size(); begin += longest) {
    const size_t n = std::min(longest, left.size() - begin);
    cut.windows.push_back(Append(std::span(left).subspan(begin, n), with, random, cut.tokens));
  }
  return cut;
}

Result<SpanRules> FindSpanRules(const Vocab& vocab, const EncoderSpec& encoder,
                                const EngineOptions& options, uint32_t n_ctx) {
  const size_t chunk = options.chunk > 0 ? options.chunk : kSourceTokens;
  SpanRules rules{.limits = {.source = std::min(chunk, kSourceTokens), .sequence = n_ctx}};
  TRY(rules.with, FindSpanTokens(vocab, encoder));
  return rules;
}

Result<SpanText> ReadSpanText(const Vocab& vocab, TextSource source, const std::string& name,
                              uint64_t most, const EngineOptions& options, const SpanRules& rules) {
  TRY(const std::vector<Token> tokens, TokenizeText(vocab, std::move(source), name, most, options));
  const std::vector<Token> ends = vocab.end_tokens();
  const size_t n_ends = std::ranges::ends_with(tokens, ends) ? ends.size() : 0;
  return CutSpans(std::span(tokens).first(tokens.size() - n_ends), rules.with, rules.limits);
}

}  // namespace moestro
