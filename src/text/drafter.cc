// SPDX-License-Identifier: MIT
#include "text/drafter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/append.h"

namespace moestro {

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
  }
  return nullptr;
}

}  // namespace moestro
