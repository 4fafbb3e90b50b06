// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "engine/knobs.h"
#include "lab/commands.h"
#include "lab/eval_report.h"
#include "lab/record_report.h"
#include "learned/beside_model.h"
#include "learned/tunings.h"
#include "offline/eval/eval.h"
#include "offline/eval/eval_tasks.h"

namespace moestro {
namespace {

struct EvalCommand {
  CommonOptions common;
  std::string model;
  std::vector<std::string> texts;
  uint32_t tokens = 0;
  uint32_t score_from = 0;
  std::string against;
  std::string scratch;
  OutputPath reference;
  std::vector<KnobSettings> sweep;  // empty: one run with the given options
  OutputPath plot;
  OutputPath output;  // file of the sweep for --quality, or of the shard
  std::optional<Shard> shard;
  std::optional<Task> task;  // instead of texts
  std::string task_file;
  uint32_t shots = 0;
  uint32_t limit = 0;
  uint32_t answer_tokens = 256;
};

// Runs a setting and keeps the result for --quality.
Result<EvalResult> Measure(const EngineOptions& base, const KnobSettings& settings,
                           Evaluation& evaluation, StoredSweep& stored) {
  Result<EvalResult> result = evaluation.Run(WithSettings(base, settings));
  if (!result) {
    return Fail(result.error().code, "{}: {}", settings.empty() ? "exact run" : ToText(settings),
                result.error().message);
  }
  if (stored.settings.empty()) {
    stored.ram_bytes = result->report.memory.budget;
    stored.expert_bytes = result->report.memory.slots;
  }
  stored.settings.push_back(ToMeasured(base, settings, *result));
  return result;
}

// Refuses a run in another budget than the stored sweep's, since a sweep is of one budget.
Status CheckBudget(const StoredSweep& stored, const MemoryPlan& memory) {
  if (!IsAnotherBudget(stored.expert_bytes, memory.slots)) return {};
  return Fail(Errc::kInvalidRequest,
              "{} for experts, {} for the setting before; what -o keeps is of one budget, give "
              "--ram or --cache",
              FormatBytes(memory.slots), FormatBytes(stored.expert_bytes));
}

// Runs every combination after one exact run. A failure costs only the later runs.
Status Sweep(const EvalCommand& command, Evaluation& evaluation, ProgressBar& bar) {
  const EngineOptions& engine = command.common.engine;
  std::vector<EvalPoint> points;
  StoredSweep stored{.model = evaluation.model(), .settings = {}};
  Status status;
  if (!command.output.empty()) {  // the speed of giving nothing up, which every wish allows
    TRY([[maybe_unused]] const EvalResult exact, Measure(ExactOf(engine), {}, evaluation, stored));
  }
  for (const KnobSettings& settings : command.sweep) {
    const auto result = Measure(engine, settings, evaluation, stored);
    if (!result) {
      status = std::unexpected(result.error());
      break;
    }
    points.push_back(ToPoint(settings, *result));
    if (command.output.empty()) continue;
    status = CheckBudget(stored, result->report.memory);
    if (!status) break;
  }
  bar.Clear();
  TRY_STATUS(Output(STDOUT_FILENO).Write(SweepAsCsv(points)));
  if (!command.plot.empty() && !points.empty()) {
    const std::string title = std::filesystem::path(command.model).stem().string();
    TRY_STATUS(WriteFile(command.plot, SweepDrawing(title, points)));
  }
  if (!command.output.empty() && !points.empty()) {
    TRY_STATUS(WriteSweep(command.output, stored));
  }
  return status;
}

Status RunOnTask(const EvalCommand& command) {
  ProgressBar bar(ProgressBar::Stderr());
  TRY(const TaskResult result, RunTask({.model = command.model,
                                        .engine = command.common.engine,
                                        .task = *command.task,
                                        .path = command.task_file,
                                        .shots = command.shots,
                                        .limit = command.limit,
                                        .answer_tokens = command.answer_tokens,
                                        .against_exact = !command.against.empty(),
                                        .progress = ShowOn(bar)}));
  bar.Clear();
  return Output(STDOUT_FILENO)
      .Write(command.common.json ? TaskAsJson(result).Dump() + "\n" : DescribeTask(result));
}

Status CheckUsage(const EvalCommand& command) {
  if (command.texts.empty() && !command.task) {
    return Fail(Errc::kUsage, "give a text, --text FILE, or questions, --task NAME FILE");
  }
  if (command.task.has_value() == command.task_file.empty()) {
    return Fail(Errc::kUsage, "questions are a name and a file: --task truthfulqa TruthfulQA.csv");
  }
  if (command.task && !command.against.empty() && command.against != "exact") {
    return Fail(Errc::kUsage, "--task is answered by one model; write --against exact");
  }
  const bool is_sweep = !command.sweep.empty();
  if (!command.output.empty() && !is_sweep && !command.shard) {
    return Fail(Errc::kUsage,
                "-o keeps a sweep or a shard; add --sweep or --shard, or leave it out");
  }
  if (command.task) return {};
  if (command.shard) {
    TRY_STATUS(CheckShardOutput(command.output));
  }
  if (is_sweep && command.common.json) {
    return Fail(Errc::kUsage, "--sweep prints CSV; leave out --json");
  }
  const auto is_budget = [](const KnobSetting& s) { return IsBudgetKnob(s.knob); };
  if (is_sweep && !command.output.empty() &&
      std::ranges::any_of(command.sweep.front(), is_budget)) {
    return Fail(Errc::kUsage,
                "-o: a stored sweep is of one budget; give --cache or --ram outside of --sweep");
  }
  const bool is_compared = is_sweep || !command.against.empty();
  if (is_compared || (command.reference.empty() && command.scratch.empty())) return {};
  return Fail(Errc::kUsage, "--reference and --scratch are for a comparison; add --against exact");
}

Status Run(const EvalCommand& command) {
  TRY_STATUS(CheckUsage(command));
  if (command.task) return RunOnTask(command);
  const bool is_sweep = !command.sweep.empty();
  ProgressBar bar(ProgressBar::Stderr());
  TRY(Evaluation evaluation,
      Evaluation::Prepare({.model = command.model,
                           .engine = command.common.engine,
                           .text = {.paths = command.texts,
                                    .tokens = command.tokens,
                                    .score_from = command.score_from},
                           .against_exact = is_sweep || !command.against.empty(),
                           .exact_model = command.against == "exact" ? "" : command.against,
                           .scratch = command.scratch,
                           .reference = command.reference,
                           .shard = command.shard,
                           .progress = ShowOn(bar)}));
  if (is_sweep) return Sweep(command, evaluation, bar);
  if (command.shard) {
    TRY(const ShardInfo shard, evaluation.RunShard(command.common.engine, command.output));
    bar.Clear();
    return Output(STDOUT_FILENO)
        .Write(ShardText(shard, command.output.text(), command.common.json));
  }
  TRY(const EvalResult result, evaluation.Run(command.common.engine));
  bar.Clear();
  return Output(STDOUT_FILENO)
      .Write(command.common.json ? EvalAsJson(result).Dump() + "\n" : DescribeEval(result));
}

void AddTextFlags(Flags eval, const std::shared_ptr<EvalCommand>& command) {
  eval.Group("Texts");
  eval.Add("--text", command->texts, "text to evaluate; several follow each other").Type("FILE");
  eval.Add("-n,--tokens", command->tokens, "evaluate at most this many tokens of all texts")
      .Positive();
  eval.Add("--score-from", command->score_from,
           "evaluate only positions from here on in each window, which begins as a text does; half "
           "a context is what llama-perplexity does")
      .Type("P")
      .Positive();
  eval.Add("--against", command->against,
           "compare with the exact run of the same engine; or with that of another model of the "
           "same vocabulary, as of the one that a fitted model comes from")
      .Type("exact|MODEL");
  const Flag sweep =
      eval.AddParsed("--sweep", "KNOB=A,B,...[;KNOB=...]",
                     Format("every combination of these values against the exact run, as CSV. "
                            "Knobs: {}",
                            KnobNames()),
                     [command](const std::string& text) -> Status {
                       TRY(command->sweep, ParseSweep(text));
                       return {};
                     })
          .Excludes("--against");
  eval.AddOutput("--plot", command->plot, "draw the sweep, too: an SVG of speed against KL")
      .Needs(sweep);
  eval.AddOutput(
      "-o,--output", command->output,
      "keep the sweep, and the exact run's speed, for --quality (found as MODEL.sweep.json); "
      "or the shard",
      SweepBeside);
  AddShardFlag(eval, command->shard).Excludes(sweep);
  eval.AddOutput("--reference", command->reference,
                 "keep the exact run's log-probabilities here, and use them if they are there");
  eval.Add("--scratch", command->scratch,
           "folder for the exact run's log-probabilities (default: that of the first text, or the "
           "current one)")
      .Type("DIR");
}

void AddTaskFlags(Flags eval, const std::shared_ptr<EvalCommand>& command) {
  eval.Group("Questions");
  const Flag task = eval.AddParsed(
      "--task", "truthfulqa|gsm8k",
      "score on the questions of FILE: TruthfulQA.csv by the likelier answer, "
      "GSM8K's JSON lines by the number written",
      [command](const std::string& text) -> Status {
        if (text == "truthfulqa") command->task = Task::kTruthfulQa;
        if (text == "gsm8k") command->task = Task::kGsm8k;
        if (command->task) return {};
        return Fail(Errc::kUsage, "'{}' is no task; known are truthfulqa, gsm8k", text);
      });
  for (const char* other :
       {"--text", "--tokens", "--score-from", "--sweep", "--shard", "--reference", "--scratch"}) {
    task.Excludes(other);
  }
  eval.Add("--shots", command->shots, "the first items stand before each question with answers")
      .Type("N")
      .Between(0U, 100U)
      .ShowDefault()
      .Needs(task);
  eval.Add("--limit", command->limit, "at most this many questions").Positive().Needs(task);
  eval.Add("--answer-tokens", command->answer_tokens, "most tokens of a written answer")
      .Type("N")
      .Positive()
      .ShowDefault()
      .Needs(task);
}

}  // namespace

void AddEval(CommandLine& line) {
  auto command = std::make_shared<EvalCommand>();
  Flags eval = line.AddCommand(CommandNamed("eval"), [command] { return ExitCode(Run(*command)); });
  eval.Footer(
      "Evaluates texts token by token, as text that is being written, in windows of --ctx tokens. "
      "With --against\nexact an exact run comes first; its log-probabilities (4 bytes per token "
      "and "
      "vocabulary entry) wait in a\nscratch file. docs/quality.md says what the figures mean.\n"
      "Examples: moestro eval model.gguf --text book.txt --tokens 4000 --against exact --cache "
      "25%\n"
      "          moestro eval model.gguf --text book.txt --sweep 'cache=12%,25%;prefetch=0,1' "
      "--plot "
      "s.svg > s.csv\n"
      "          moestro eval model.gguf --text book.txt --ram 6G --sweep 't1=0.3,0.6,0.9' --low "
      "low.gguf -o\nmodel.gguf.sweep.json\n"
      "          moestro eval model.gguf --task truthfulqa TruthfulQA.csv --limit 100 --against "
      "exact");
  eval.Add("MODEL", command->model, "GGUF file").Required();
  eval.Add("FILE", command->task_file, "questions for --task");
  AddTextFlags(eval, command);
  AddTaskFlags(eval, command);
  AddCommonFlags(eval, command->common);
}

}  // namespace moestro
