// SPDX-License-Identifier: MIT
// Texts as pairs of a source and a target, for models with an encoder: spans are cut out of a text,
// a sentinel token stands in the place of each, and the target holds the spans. The models were
// trained on such pairs. Source: T5 (Raffel et al., "Exploring the Limits of Transfer Learning with
// a Unified Text-to-Text Transformer", 2020), section 3.1.4: 15 % of the tokens, spans of 3 on
// average.
//
// Pure but for the vocabulary. Thread rule: none, calls share nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "engine/engine_options.h"
#include "model/token_stream.h"
#include "model/vocab.h"

namespace moestro {

// The tokens that mark sources, targets and cut spans.
struct SpanTokens {
  Token source_end = 0;
  Token target_begin = 0;
  std::vector<Token> sentinels = {};  // one for each span, in this order
};

// The span tokens of a vocabulary: <extra_id_0>, <extra_id_1>, .... kUnsupported: the vocabulary
// has none.
Result<SpanTokens> FindSpanTokens(const Vocab& vocab, const EncoderSpec& encoder);

struct SpanLimits {
  size_t source = 0;    // tokens of a source, with its end
  size_t sequence = 0;  // of source and target together
};

struct SpanRules {
  SpanTokens with = {};
  SpanLimits limits = {};
};

// A sequence of a SpanText: tokens [begin, begin + length). The first n_source are the source with
// its end, the others the target with its first token and its end.
struct SpanWindow {
  size_t begin = 0;
  size_t n_source = 0;
  size_t length = 0;
};

struct SpanText {
  std::vector<Token> tokens = {};
  std::vector<SpanWindow> windows = {};
};

// The most tokens of a text that become one sequence; 0: none fit.
size_t LongestSpanPiece(const SpanTokens& with, const SpanLimits& limits);
// The longest source on which models of this kind were trained.
inline constexpr size_t kSourceTokens = 512;
// Rules for an engine with these options and sequences of n_ctx tokens. Errors: those of
// FindSpanTokens().
Result<SpanRules> FindSpanRules(const Vocab& vocab, const EncoderSpec& encoder,
                                const EngineOptions& options, uint32_t n_ctx);
// Cuts a text into pieces as long as the limits allow and makes a sequence of each. Ends of sources
// within the text are left out, and so is a last piece of a single token. Equal texts give equal
// sequences.
SpanText CutSpans(std::span<const Token> text, const SpanTokens& with, const SpanLimits& limits);
// The first `most` tokens of a text, or all if `most` is 0, as sequences of spans. Errors: those of
// TokenizeText().
Result<SpanText> ReadSpanText(const Vocab& vocab, TextSource source, const std::string& name,
                              uint64_t most, const EngineOptions& options, const SpanRules& rules);

}  // namespace moestro
