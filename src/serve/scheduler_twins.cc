// SPDX-License-Identifier: MIT
// Several jobs of one prompt, which come with one request: the first computes it, the others fork
// what it has. They are of one request, so they share whatever it says of prefixes.
#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "serve/scheduler.h"

namespace moestro {
namespace {

constexpr uint64_t kSavedAtOnce = 4 * kMiB;  // some milliseconds

}  // namespace

// The first that waits. Of a request's further jobs, one whose prompt is being computed waits for
// that, and those behind it do not.
std::optional<Scheduler::NextJob> Scheduler::Next() {
  const auto may_begin = [this](const std::shared_ptr<Job>& job) {
    const RunningText* twin = TwinOf(*job);
    return twin == nullptr || twin->sequence().position() + 1 >= twin->n_prompt();
  };
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) return NextJob{.queue = &waiting_, .at = 0, .job = waiting_.front()};
  const auto found = std::ranges::find_if(further_, may_begin);
  if (found == further_.end()) return std::nullopt;
  return NextJob{.queue = &further_, .at = found - further_.begin(), .job = *found};
}

// The running text of the same prompt that has computed most of it; nullptr: there is none, or the
// job has to see all of the prompt's logits.
const RunningText* Scheduler::TwinOf(const Job& job) const {
  if (job.options().scores_prompt()) return nullptr;
  const RunningText* best = nullptr;
  for (const auto& text : running_) {
    if (best != nullptr && best->sequence().position() >= text->sequence().position()) continue;
    if (text->job().options().prompt == job.options().prompt) best = text.get();
  }
  return best;
}

// The prompt as a twin has computed it, but for its last token, whose logits are gone.
std::optional<Sequence> Scheduler::SharedPrompt(const Job& job) const {
  const std::span<const Token> prompt(job.options().prompt);
  const auto most = static_cast<uint32_t>(prompt.size() - 1);
  if (const RunningText* twin = TwinOf(job); twin != nullptr) {
    Sequence sequence = twin->sequence().Fork();
    sequence.CutBack(std::min(most, sequence.position()));
    return sequence;
  }
  if (job.options().scores_prompt()) return std::nullopt;
  for (const Sequence& held : held_prompts_) {
    if (std::ranges::equal(held.tokens(), prompt.first(most))) return held.Fork();
  }
  return std::nullopt;
}

// A text that leaves no prefix has ended: its prompt stays as long as a twin waits.
void Scheduler::HoldForTwins(RunningText& text) {
  const Job& job = text.job();
  if (text.sequence().position() + 1 < text.n_prompt() || text.n_prompt() == 1) return;
  {
    const std::lock_guard lock(mutex_);
    const bool is_wanted = std::ranges::any_of(further_, [&](const auto& other) {
      return !other->is_cancelled() && other->options().prompt == job.options().prompt;
    });
    if (!is_wanted) return;
  }
  const std::span<const Token> prompt(job.options().prompt);
  const auto is_it = [&](const Sequence& held) {
    return std::ranges::equal(held.tokens(), prompt.first(prompt.size() - 1));
  };
  if (std::ranges::any_of(held_prompts_, is_it)) return;
  held_prompts_.push_back(text.TakeSequence());
  held_prompts_.back().CutBack(text.n_prompt() - 1);
}

void Scheduler::LetGoOfHeldPrompts() {
  if (held_prompts_.empty()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(held_prompts_, [this](const Sequence& held) {
    return std::ranges::none_of(further_, [&](const std::shared_ptr<Job>& job) {
      const std::span<const Token> prompt(job->options().prompt);
      return !job->is_cancelled() &&
             std::ranges::equal(held.tokens(), prompt.first(prompt.size() - 1));
    });
  });
}

// Positions that nobody computes with go; false: there are none. A small prefix goes to disk first,
// where it would be at its rest: a small cache gives none of them so long.
bool Scheduler::DropOne() {
  if (KeptPrefixes::Kept* oldest = kept_.FindOldest(); oldest != nullptr) {
    const uint64_t each = Engine::PositionBytes(engine_.spec(), KvType::kF16);
    const bool is_small = oldest->sequence.position() * each <= kSavedAtOnce;
    if (files_.is_on() && !oldest->is_saved && is_small) Save(*oldest);
    return kept_.DropOldest();
  }
  if (held_prompts_.empty()) return false;
  held_prompts_.pop_back();
  return true;
}

}  // namespace moestro
