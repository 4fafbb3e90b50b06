// SPDX-License-Identifier: MIT
// The loop that writes texts, one (run, chat, evaluations) or several (a server): chooses the rows
// of each step (text/step_planner.h), lets one text draft at a time, gives logits to the texts, and
// computes a prompt's step piece by piece so that other texts get tokens meanwhile.
//
// A text is the same alone or beside others, with or without drafts: a row's result depends on the
// row's own sequence only.
//
// When texts grow until positions run out, the loop's owner gives back what it keeps for later
// texts. Then the newest text gives up its positions and is computed again later.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/distribution.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "core/batch.h"
#include "engine/engine.h"
#include "memory/memory_use.h"
#include "text/running_text.h"
#include "text/step_planner.h"

namespace moestro {

// The owner of a loop, called within TextLoop::Step(). The bodies here are those of an owner that
// has the engine for its texts alone.
class TextLoopOwner {
 public:
  virtual ~TextLoopOwner() = default;
  // How much may be done for room: everything before a step; within a step and for a draft only
  // what takes no time and costs no text that waits.
  enum class Effort : uint8_t { kAll, kLittle };
  // Makes room for `positions` and for places of `n_texts` sequences. False: there is no more room
  // to make.
  virtual bool MakeRoom(uint32_t /*positions*/, uint32_t /*n_texts*/, Effort /*effort*/) {
    return true;
  }
  // The texts whose prompts are in the step that begins; empty: the step has ended.
  virtual void PromptsInStep(std::span<const RunningText* const> /*texts*/) {}
  // Texts got tokens between two pieces of a prompt's step.
  virtual void TextsStepped() {}
  // Between two pieces of a prompt's step. True: the step is given up.
  virtual bool is_stopped() const { return false; }
  // The text has ended, and its reader has got the last event.
  virtual void Ended(std::unique_ptr<RunningText> text) = 0;
};

struct TextLoopOptions {
  uint32_t step_rows = 512;       // most rows of a prompt's step
  double gap_seconds = 1.0;       // see StepPlanner
  uint32_t checkpoint_every = 0;  // the state after each so many-th token is kept; 0: of none
  // A prompt's only token that its sequence lacks is a decode row, as in Append().
  bool decodes_single = false;
  // A failed step is computed again for each of its texts alone, since a failed read may concern
  // one text's experts only. False: the step's error ends its texts.
  bool tries_alone = true;
};

struct TextLoopCounts {
  uint64_t prompt_tokens = 0;  // computed
  uint64_t generated = 0;      // rows that tokens were picked from
  uint64_t steps = 0;
  double prompt_seconds = 0.0;  // of steps with rows of prompts
  double text_seconds = 0.0;    // of all other steps
  Histogram gap_ms;             // between two tokens of a text
};

class TextLoop {
 public:
  // Everything must outlive this. REQUIRES: not more than engine.chunk() texts run.
  TextLoop(Engine& engine, TextLoopOwner& owner, const TextLoopOptions& options,
           const Clock& clock);

  // The text runs from the next step on, at the first free place.
  void Start(std::unique_ptr<RunningText> text);
  // Computes a step of the running texts, and removes texts that have ended. kInterrupted: after
  // Engine::RequestStop(), or because a prompt's reader has gone; the texts go on with the next
  // call. Other errors have ended the texts that they concern. REQUIRES: a text runs.
  Status Step();

  // In order of arrival.
  const std::deque<std::unique_ptr<RunningText>>& running() const { return running_; }
  bool IsTaken(uint32_t place) const;
  // Whether another text of `positions` may run beside the running ones; alone any text may run.
  bool Fits(uint32_t positions) const;
  // Positions that a text should find free when it begins, so that it need not give up soon.
  static constexpr uint32_t kReserve = 4 * KvBlocks::kPositions;
  // Positions that a sequence may take beyond the tokens to come.
  static constexpr uint32_t kSlack = 2 * KvBlocks::kPositions;

  // Texts that gave up their positions, the one to go on next first.
  const std::deque<std::unique_ptr<RunningText>>& paused() const { return paused_; }
  // The first paused text runs again. REQUIRES: a text is paused.
  void ResumeOne();
  // Removes the running and paused texts that `is_such` is true of, oldest first.
  std::vector<std::unique_ptr<RunningText>> Remove(
      const std::function<bool(const RunningText&)>& is_such);

  const TextLoopCounts& counts() const { return counts_; }
  // A number that changes when a text begins, has its first token, gives up or ends.
  uint64_t changes() const { return changes_; }

 private:
  uint32_t HeldPositions() const;
  bool MakeRoomFor(std::span<const uint32_t> rows);
  Status StepWithPrompts(std::span<const uint32_t> rows);
  Status StepOfTexts(std::span<const uint32_t> rows);
  void Take(RunningText& text, const BatchRow& row, std::span<const float> logits);
  Status Compute(std::span<const uint32_t> rows);
  Status ComputePrompts(std::span<const uint32_t> rows, double& aside);
  bool IsTimeForTexts(std::span<const uint32_t> rows, double piece) const;
  bool IsAnyCancelled(std::span<const uint32_t> rows) const;
  bool WaitsForToken(size_t text, std::span<const uint32_t> rows) const;
  Status StepAside(std::span<const uint32_t> rows);
  Result<RunningText*> DraftFor(std::span<const uint32_t> rows);
  Status NoteTextsStep(std::span<const uint32_t> rows, RunningText* drafted, double seconds);
  void FailedStep(std::span<const uint32_t> rows, const Error& error);
  void RemoveEnded();

  Engine& engine_;
  TextLoopOwner& owner_;
  const TextLoopOptions options_;
  const Clock& clock_;
  StepPlanner planner_;
  std::deque<std::unique_ptr<RunningText>> running_;
  std::deque<std::unique_ptr<RunningText>> paused_;
  uint32_t drafted_last_ = 0;  // place of the text that drafted last
  TextLoopCounts counts_;
  uint64_t changes_ = 0;
};

// A loop of one text, with an engine that no other text uses. A prompt is one step.
class LoneText final : private TextLoopOwner {
 public:
  // `engine` must outlive this.
  LoneText(Engine& engine, std::unique_ptr<RunningText> text, Clock clock = SteadySeconds);

  // As TextLoop::Step(). REQUIRES: !has_ended().
  Status Step() { return loop_.Step(); }
  bool has_ended() const { return ended_ != nullptr; }
  RunningText& text() { return text_; }
  const RunningText& text() const { return text_; }
  const TextLoopCounts& counts() const { return loop_.counts(); }
  // Writes the text to its end. After Engine::RequestStop() the text ends with kInterrupted if
  // `is_stopped` returns true. Otherwise the stop was for an earlier text, and this text goes on.
  void Write(const std::function<bool()>& is_stopped = [] { return true; });

 private:
  void Ended(std::unique_ptr<RunningText> text) override { ended_ = std::move(text); }

  Clock clock_;
  RunningText& text_;  // owned by the loop until its end
  TextLoop loop_;
  std::unique_ptr<RunningText> ended_;
};

}  // namespace moestro
