// SPDX-License-Identifier: MIT
// Scores on published questions: TruthfulQA by the answer that the model finds likelier (MC1),
// GSM8K by the number that it writes.
//
// Prompts are plain text: "Q: …\nA:" and "Question: …\nAnswer:", each followed by a space and the
// answer; the first `shots` items of the file stand in front with their answers and are not scored.
// As in a user's run, a prompt is evaluated at once and the tokens behind it one by one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/run_report.h"
#include "offline/eval/eval_stats.h"

namespace moestro {

enum class Task : uint8_t {
  kTruthfulQa,  // the best answer against the incorrect ones, by summed log-probability
  kGsm8k,       // the greedy answer's final number against the file's
};

struct TaskRequest {
  std::string model;
  EngineOptions engine;
  Task task = Task::kTruthfulQa;
  std::string path;              // at most 1 MiB
  uint32_t shots = 0;            // items shown with their answers
  uint32_t limit = 0;            // items asked; 0: all
  uint32_t answer_tokens = 256;  // most of a written answer
  bool against_exact = false;
  Progress progress = {};  // may be empty
};

struct ItemOutcome {
  size_t item = 0;  // in the file, from 0
  bool is_right = false;
  std::string answer;             // the number written, or the place of the choice (0: the best)
  std::vector<double> log_probs;  // of each choice, the best answer first
};

struct TaskRun {
  std::vector<ItemOutcome> items;
  RunReport report;

  uint64_t right() const;
};

struct TaskResult {
  uint64_t too_long = 0;  // items that do not fit the context: not asked
  TaskRun run;
  // Against the exact run.
  struct Against {
    uint64_t right = 0;    // of the exact run
    uint64_t changed = 0;  // answers that differ, right or wrong
    uint64_t gained = 0;   // wrong in the exact run, right in the judged one
    uint64_t lost = 0;
  };
  std::optional<Against> against;
};

// The file is read and all prompts are tokenized before an engine is opened; the exact run is
// first, and its engine is closed before the other is opened. Errors: of the file (kIo,
// kInvalidRequest); kInvalidRequest when no item is left or none fits the context; the model's and
// the engine's.
Result<TaskResult> RunTask(const TaskRequest& request);

}  // namespace moestro
