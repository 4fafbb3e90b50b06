// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/eval_report.h"
#include "cli/eval_sweep.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "engine/knobs.h"
#include "offline/eval.h"

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
  std::string reference;
  std::vector<KnobSettings> sweep;  // empty: one run with the options as they are
  std::string plot;
};

// Every combination after one exact run. A failure costs only what comes after it.
Status Sweep(const EvalCommand& command, Evaluation& evaluation, ProgressBar& bar) {
  std::vector<EvalPoint> points;
  Status status;
  for (const KnobSettings& settings : command.sweep) {
    const auto result = evaluation.Run(WithSettings(command.common.engine, settings));
    if (!result) {
      status = Fail(result.error().code, "{}: {}", ToText(settings), result.error().message);
      break;
    }
    points.push_back(ToPoint(settings, *result));
  }
  bar.Clear();
  TRY_STATUS(Output(STDOUT_FILENO).Write(SweepAsCsv(points)));
  if (!command.plot.empty() && !points.empty()) {
    const std::string title = std::filesystem::path(command.model).stem().string();
    TRY_STATUS(WriteFile(command.plot, SweepDrawing(title, points)));
  }
  return status;
}

Status CheckUsage(const EvalCommand& command) {
  const bool is_sweep = !command.sweep.empty();
  if (is_sweep && command.common.json) {
    return Fail(Errc::kUsage, "--sweep prints CSV; leave out --json");
  }
  const bool is_compared = is_sweep || !command.against.empty();
  if (is_compared || (command.reference.empty() && command.scratch.empty())) return {};
  return Fail(Errc::kUsage, "--reference and --scratch are for a comparison; add --against exact");
}

Status Run(const EvalCommand& command) {
  TRY_STATUS(CheckUsage(command));
  const bool is_sweep = !command.sweep.empty();
  ProgressBar bar(ProgressBar::Stderr());
  TRY(Evaluation evaluation,
      Evaluation::Prepare({.model = command.model,
                           .engine = command.common.engine,
                           .text = {.paths = command.texts,
                                    .tokens = command.tokens,
                                    .score_from = command.score_from},
                           .against_exact = is_sweep || !command.against.empty(),
                           .scratch = command.scratch,
                           .reference = command.reference,
                           .progress = ShowOn(bar)}));
  if (is_sweep) return Sweep(command, evaluation, bar);
  TRY(const EvalResult result, evaluation.Run(command.common.engine));
  bar.Clear();
  return Output(STDOUT_FILENO)
      .Write(command.common.json ? EvalAsJson(result).Dump() + "\n" : DescribeEval(result));
}

}  // namespace

void AddEval(CommandLine& line) {
  auto command = std::make_shared<EvalCommand>();
  Flags eval = line.AddCommand("eval", "perplexity, and how far a run is from the exact one",
                               [command] { return ExitCode(Run(*command)); });
  eval.Footer(
      "Evaluates texts token by token, as text that is being written, in windows of --ctx tokens. "
      "With --against\nexact an exact run comes first; its log-probabilities (4 bytes per token "
      "and "
      "vocabulary entry) wait in a\nscratch file. docs/quality.md says what the figures mean.\n"
      "Examples: moestro eval model.gguf --text book.txt --tokens 4000 --against exact --cache "
      "25%\n"
      "          moestro eval model.gguf --text book.txt --sweep 'cache=12%,25%;prefetch=0,1' "
      "--plot "
      "s.svg > s.csv");
  eval.Add("MODEL", command->model, "GGUF file").Required();
  eval.Add("--text", command->texts, "text to evaluate; several follow each other")
      .Type("FILE")
      .Required();
  eval.Add("-n,--tokens", command->tokens, "evaluate at most this many tokens of all texts")
      .Positive();
  eval.Add("--score-from", command->score_from,
           "evaluate only positions from here on in each window, which begins as a text does; half "
           "a context is what llama-perplexity does")
      .Type("P")
      .Positive();
  eval.Add("--against", command->against, "compare with the exact run of the same engine")
      .OneOf({"exact"});
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
  eval.Add("--plot", command->plot, "draw the sweep, too: an SVG of speed against KL")
      .Type("FILE")
      .Needs(sweep);
  eval.Add("--reference", command->reference,
           "keep the exact run's log-probabilities here, and use them if they are there")
      .Type("FILE");
  eval.Add("--scratch", command->scratch,
           "folder for the exact run's log-probabilities (default: that of the first text, or the "
           "current one)")
      .Type("DIR");
  AddCommonFlags(eval, command->common);
}

}  // namespace moestro
