// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/eval_report.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
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
};

Status Run(const EvalCommand& command) {
  ProgressBar bar(ProgressBar::Stderr());
  TRY(Evaluation evaluation, Evaluation::Prepare({.model = command.model,
                                                  .engine = command.common.engine,
                                                  .text = {.paths = command.texts,
                                                           .tokens = command.tokens,
                                                           .score_from = command.score_from},
                                                  .against_exact = !command.against.empty(),
                                                  .scratch = command.scratch,
                                                  .reference = command.reference,
                                                  .progress = ShowOn(bar)}));
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
      "Example: moestro eval model.gguf --text book.txt --tokens 4000 --against exact --cache 25%");
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
  const Flag against =
      eval.Add("--against", command->against, "compare with the exact run of the same engine")
          .OneOf({"exact"});
  eval.Add("--reference", command->reference,
           "keep the exact run's log-probabilities here, and use them if they are there")
      .Type("FILE")
      .Needs(against);
  eval.Add("--scratch", command->scratch,
           "folder for the exact run's log-probabilities (default: that of the first text, or the "
           "current one)")
      .Type("DIR")
      .Needs(against);
  AddCommonFlags(eval, command->common);
}

}  // namespace moestro
