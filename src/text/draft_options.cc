// SPDX-License-Identifier: MIT
#include "text/draft_options.h"

#include "base/number.h"

namespace moestro {
namespace {

constexpr uint32_t kMostDrafted = 16;

}  // namespace

Result<DraftOptions> ParseDraft(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  DraftOptions options;
  if (name == "little") options = {.kind = DraftKind::kLittle, .most = 4};
  if (name == "ngram") options = {.kind = DraftKind::kNgram, .most = 8};
  if (!options.is_on()) {
    return Fail(Errc::kUsage, "'{}' drafts nothing; write little or ngram", name);
  }
  if (colon == std::string::npos) return options;
  const std::string number = text.substr(colon + 1);
  options.most = ParseNumber<uint32_t>(number).value_or(0);
  if (options.most > 0 && options.most <= kMostDrafted) return options;
  return Fail(Errc::kUsage, "'{}' is no number of tokens from 1 to {}", number, kMostDrafted);
}

Status CheckDraft(const DraftOptions& draft, const EngineOptions& engine,
                  const ModelToLoad& model) {
  if (!draft.is_on()) return {};
  if (!engine.has_exact_experts()) {
    return Fail(Errc::kUsage,
                "--draft keeps the text exact; leave out what makes it less so (--low, --t1, "
                "--drop-below, --prefer-resident, --little, --quality)");
  }
  if (draft.kind != DraftKind::kLittle) return {};
  if (!model.is_native()) {
    return Fail(Errc::kUsage,
                "--draft little needs the native engine, and {} models run hosted; --draft ngram "
                "works with both",
                model.arch_name());
  }
  if (model.id().shape.n_used < 2) {
    return Fail(Errc::kUsage,
                "--draft little needs a model that uses several experts for a token; this one "
                "uses 1");
  }
  return {};
}

uint64_t DraftBytes(const DraftOptions& draft, uint32_t n_vocab) {
  return draft.is_on() ? (uint64_t{draft.most} + 1) * n_vocab * sizeof(float) : 0;
}

}  // namespace moestro
