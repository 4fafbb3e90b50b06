// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "base/progress.h"
#include "base/visible.h"
#include "cli/command_names.h"
#include "cli/common_flags.h"
#include "cli/features.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "lab/commands.h"
#include "lab/fit_report.h"
#include "offline/fit/fit_search.h"
#include "offline/weight_types.h"

namespace moestro {
namespace {

struct FitCommand {
  CommonOptions common;
  FitRequest request;
  uint32_t tokens = 4096;
  uint32_t window = 256;
  OutputPath plot;
};

// "q2_k,q4_k"
Result<std::vector<ggml_type>> ParseWidths(std::string_view text) {
  std::vector<ggml_type> widths;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    TRY(const ggml_type type, FindWeightType(text.substr(begin, end - begin)));
    widths.push_back(type);
    begin = end + 1;
  }
  return widths;
}

Status Run(FitCommand& command) {
  FitRequest& request = command.request;
  TRY_STATUS(CheckAllExperts("fit", command.common.engine));
  request.engine = command.common.engine;
  request.engine.ctx = command.window;
  request.text.tokens = command.tokens;
  if (request.widths.empty()) {
    TRY(request.widths, ParseWidths("q2_k,q4_k,q8_0"));
  }
  ProgressBar bar(ProgressBar::Stderr());
  request.progress = ShowOn(bar);
  request.note = [&](const std::string& text) {
    bar.Clear();
    PrintOnStderr(text + "\n");
  };
  TRY(const FitReport report, FitWidths(request));
  bar.Clear();
  if (!command.plot.empty() && report.ranking == FitRanking::kNone) {
    request.note(Format("{} is not written: all experts have one width, nothing was ranked",
                        command.plot.text()));
  } else if (!command.plot.empty()) {
    const std::string title = std::filesystem::path(request.model).stem().string();
    TRY_STATUS(WriteFile(command.plot, FitDrawing(title, report)));
  }
  return Output(STDOUT_FILENO)
      .Write(command.common.json ? FitAsJson(request, report).Dump() + "\n"
                                 : DescribeFit(request, report));
}

}  // namespace

void AddFit(CommandLine& line) {
  const auto command = std::make_shared<FitCommand>();
  FitRequest& request = command->request;
  Flags fit = line.AddCommand(CommandNamed("fit"), [command] { return ExitCode(Run(*command)); });
  fit.Footer(
      "Measures all experts at each width, then each expert alone, and writes a model in which the "
      "least\nimportant experts have the lower one of two widths. What it measures stays in the "
      "scratch folder until it\nis done: the same command goes on where it was stopped. "
      "docs/fit.md says how it searches.\n"
      "Examples: moestro fit model.gguf --text book.txt --tolerance KL=0.01 -o fitted.gguf\n"
      "          moestro fit model.gguf --text book.txt --tolerance ppl=1% --widths q3_k,q6_k "
      "--plot importance.svg -o fitted.gguf");
  fit.Add("MODEL", request.model, "GGUF file").Required();
  fit.Add("--text", request.text.paths, "text to measure with; several follow each other")
      .Type("FILE")
      .Required();
  fit.AddParsed("--tolerance", "KL=X|ppl=X%",
                "what the widths may cost: nats per token, or higher perplexity",
                [command](const std::string& text) -> Status {
                  TRY(command->request.tolerance, ParseTolerance(text));
                  return {};
                })
      .Required();
  fit.AddParsed("--widths", "TYPE,TYPE,...",
                "types that experts may have beside their own (default: q2_k,q4_k,q8_0)",
                [command](const std::string& text) -> Status {
                  TRY(command->request.widths, ParseWidths(text));
                  return {};
                });
  fit.Add("--imatrix", request.imatrix,
          "importances of the weights' columns, from 'moestro imatrix' or llama-imatrix")
      .Type("FILE");
  fit.AddOutput("-o,--output", request.path, "fitted model to write").Required();
  fit.AddOutput("--plot", command->plot, "draw the importances, too: an SVG");
  fit.Add("-n,--tokens", command->tokens,
          "of the text: half ranks experts, a quarter chooses how many go lower, a quarter checks "
          "it")
      .Positive()
      .ShowDefault();
  fit.Add("--window", command->window, "tokens of a window, in place of --ctx")
      .Between(16U, 65536U)
      .ShowDefault();
  fit.Add("--measure-most", request.measure_most,
          "with more experts than this, importance is estimated, and measured of 64 to see if the "
          "estimate holds")
      .Type("N")
      .ShowDefault();
  fit.Add("--measure-minutes", request.measure_minutes,
          "if it does not hold, experts are measured for so long")
      .Type("MIN")
      .Between(0.0, 1e6)
      .ShowDefault();
  fit.Add("--scratch", request.scratch,
          "folder for copies and results until it is done (default: that of the first text, or the "
          "current one)")
      .Type("DIR");
  fit.AddSwitch("--force", request.overwrite, "replace an existing file");
  AddCommonFlags(fit, command->common);
}

}  // namespace moestro
