// SPDX-License-Identifier: MIT
#include "text/drafts.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "base/number.h"
#include "base/text.h"
#include "engine/append.h"
#include "model/families/families.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

constexpr uint32_t kMostDrafted = 16;
// Files have one such layer as a rule, trained for the next token; behind that acceptance falls.
constexpr uint32_t kMostPredicted = 3;
constexpr uint32_t kMostOfText = 8;  // by default

}  // namespace

Result<DraftOptions> ParseDraft(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  DraftOptions options;
  if (name == "little") options = {.kind = DraftKind::kLittle, .most = 4};
  if (name == "ngram") options = {.kind = DraftKind::kNgram, .most = kMostOfText};
  if (name == "mtp") options = {.kind = DraftKind::kPredicting, .most = kMostPredicted};
  if (text == "auto") {
    return DraftOptions{.kind = DraftKind::kPredicting, .most = kMostPredicted, .is_auto = true};
  }
  if (!options.is_on()) {
    return Fail(Errc::kUsage, "'{}' drafts nothing; write auto, little, ngram or mtp", name);
  }
  if (colon == std::string::npos) return options;
  const std::string number = text.substr(colon + 1);
  const uint32_t limit = options.kind == DraftKind::kPredicting ? kMostPredicted : kMostDrafted;
  options.most = ParseNumber<uint32_t>(number).value_or(0);
  if (options.most > 0 && options.most <= limit) return options;
  return Fail(Errc::kUsage, "'{}' is no number of tokens from 1 to {}", number, limit);
}

namespace {

// The reason why the model's file does not draft; empty: it has a layer that does.
std::string WhyNotPredicting(const ModelToLoad& model) {
  if (!model.is_native()) {
    return Format("it needs the native engine, and {} models run hosted", model.arch_name());
  }
  const ModelSpec& spec = model.native().spec;
  if (spec.n_next_token_layers == 0) {
    return Format("{} has no layer that predicts further tokens", model.gguf().paths().front());
  }
  const std::string tensor = LayerTensorName(spec.n_layer(), "nextn.eh_proj.weight");
  if (model.gguf().Find(tensor) == nullptr) {
    return Format("{} was left out of {}", tensor, model.gguf().paths().front());
  }
  if (FindFamily(Families(), spec.arch_name)->can_predict) return {};
  return Format("layers that predict further tokens are passed over in {} models", spec.arch_name);
}

}  // namespace

Status CheckDraft(const DraftOptions& draft, const EngineOptions& engine,
                  const ModelToLoad& model) {
  if (!draft.is_on()) return {};
  if (!engine.has_exact_experts()) {
    return Fail(Errc::kUsage,
                "--draft keeps the text exact; leave out what makes it less so (--low, --t1, "
                "--drop-below, --prefer-resident, --little, --quality)");
  }
  if (draft.kind == DraftKind::kNgram || draft.is_auto) return {};
  if (draft.kind == DraftKind::kPredicting) {
    const std::string why = WhyNotPredicting(model);
    if (why.empty()) return {};
    return Fail(Errc::kUsage, "--draft mtp: {}; --draft ngram works without", why);
  }
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

Result<DraftOptions> PrepareDraft(const DraftOptions& draft, const ModelToLoad& model,
                                  EngineOptions& engine) {
  TRY_STATUS(CheckDraft(draft, engine, model));
  DraftOptions chosen = draft;
  if (draft.is_auto) {
    // Devices have no place for the layer: with one that was asked for, the text drafts.
    const bool has_device = (engine.device.name != "auto" && engine.device.name != "cpu") ||
                            !engine.device.remote.hosts.empty();
    const bool predicts = WhyNotPredicting(model).empty() && !has_device;
    if (!predicts) chosen = {.kind = DraftKind::kNgram, .most = kMostOfText};
  }
  engine.predicts = chosen.kind == DraftKind::kPredicting;
  return chosen;
}

std::shared_ptr<DraftControl> MakeDraftControl(const DraftOptions& draft) {
  return std::make_shared<DraftControl>(draft.most,
                                        draft.is_auto ? DraftStart::kPriced : DraftStart::kTries);
}

LittleDrafter::LittleDrafter(Engine& engine, Sequence& sequence)
    : engine_(engine),
      sequence_(sequence),
      little_({.n_used = engine.id().shape.n_used / 2,
               .misses = Misses::kDrop,
               .prefers_resident = true}) {}

Result<Draft> LittleDrafter::Propose(std::span<const Token> text, uint32_t most) {
  Draft draft;
  const uint32_t position = sequence_.position();
  sequence_.Keep();
  Status status;
  while (status && draft.tokens.size() < most) {
    status = Add(draft.tokens.empty() ? text.back() : draft.tokens.back(), draft);
  }
  // The step that checks the draft fills these cells.
  const Status back = CutBackTo(engine_, sequence_, position);
  if (status) status = back;
  if (!status) return std::unexpected(std::move(status).error());
  return draft;
}

// Evaluates a token and drafts the likeliest next token.
Status LittleDrafter::Add(Token token, Draft& draft) {
  const Batch batch{.rows = {{.sequence = sequence_.id(),
                              .position = sequence_.position(),
                              .token = token,
                              .wants_logits = true}},
                    .little = little_};
  TRY_STATUS(engine_.Step(batch, [&](size_t, std::span<const float> logits) {
    draft.tokens.push_back(static_cast<Token>(std::ranges::max_element(logits) - logits.begin()));
  }));
  const auto widened = engine_.widened();
  draft.foreseen.resize(widened.size());
  for (size_t layer = 0; layer < widened.size(); ++layer) {
    draft.foreseen[layer].append_range(widened[layer]);
  }
  return {};
}

Result<Draft> PredictingDrafter::Propose(std::span<const Token> text, uint32_t most) {
  Draft draft;
  TRY(draft.tokens, engine_.Predict(sequence_, text.back(), most));
  return draft;
}

Result<Draft> NgramDrafter::Propose(std::span<const Token> text, uint32_t most) {
  constexpr size_t kLongest = 4;
  constexpr size_t kShortest = 2;
  size_t best = kShortest - 1;  // number of equal tokens
  size_t after = 0;
  for (size_t end = text.size() - std::min<size_t>(text.size(), 1); end > 0; --end) {
    size_t same = 0;
    while (same < kLongest && same < end && text[end - 1 - same] == text[text.size() - 1 - same]) {
      ++same;
    }
    if (same <= best) continue;
    best = same;
    after = end;
    if (best == kLongest) break;
  }
  Draft draft;
  if (after == 0) return draft;
  const std::span<const Token> follows = text.subspan(after);
  draft.tokens.assign_range(follows.first(std::min<size_t>(most, follows.size())));
  return draft;
}

std::unique_ptr<Drafter> MakeDrafter(DraftKind kind, Engine& engine, Sequence& sequence) {
  switch (kind) {
    case DraftKind::kNone:
      return nullptr;
    case DraftKind::kLittle:
      return std::make_unique<LittleDrafter>(engine, sequence);
    case DraftKind::kNgram:
      return std::make_unique<NgramDrafter>();
    case DraftKind::kPredicting:
      return std::make_unique<PredictingDrafter>(engine, sequence);
  }
  return nullptr;
}

Status TextDrafts::Propose(std::span<const Token> text, uint32_t most) {
  const double start = clock_();
  TRY(draft_, drafter_.Propose(text, most));
  draft_seconds_ = clock_() - start;
  return {};
}

// A draft pays if its tokens come faster than the step's texts make tokens together, since all of
// them wait for its rows. So a plain step counts as the time of one text's token.
void TextDrafts::Plain(double seconds, uint32_t n_texts) {
  // Texts that come or go change what a token takes.
  if (n_texts != std::exchange(n_texts_, n_texts)) control_.Remeasure();
  control_.Plain((std::exchange(draft_seconds_, 0.0) + seconds) / n_texts);
}

void TextDrafts::Round(double step_seconds, uint32_t accepted, uint32_t n_texts) {
  const auto drafted = static_cast<uint32_t>(draft_.tokens.size());
  const double others = (n_texts - 1) * control_.plain_seconds();
  control_.Round({.draft_seconds = std::exchange(draft_seconds_, 0.0),
                  .step_seconds = std::max(step_seconds - others, 0.0),
                  .drafted = drafted,
                  .accepted = accepted});
  draft_ = {};
  if (told_) told_(drafted, accepted);
}

}  // namespace moestro
