// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/features.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "cli/unvisited.h"
#include "offline/record/imatrix.h"

namespace moestro {
namespace {

struct ImatrixFlags {
  CommonOptions common;
  ImatrixOptions options;
};

std::string ImatrixText(const ImatrixOptions& options, const ImatrixReport& report) {
  return Format("importances {} tokens, in {}\n", report.tokens, options.path) +
         UnvisitedText(report.unvisited, report.experts);
}

Json ImatrixAsJson(const ImatrixOptions& options, const ImatrixReport& report) {
  Json layers = Json::Array();
  for (const uint32_t unvisited : report.unvisited) layers.Push(unvisited);
  Json object = Json::Object();
  object.Set("imatrix", options.path)
      .Set("tokens", report.tokens)
      .Set("experts", report.experts)
      .Set("unvisited", std::move(layers));
  return object;
}

Status Run(ImatrixFlags& flags) {
  ImatrixOptions& options = flags.options;
  TRY_STATUS(CheckAllExperts("imatrix", flags.common.engine));
  ProgressBar bar(ProgressBar::Stderr());
  options.engine = flags.common.engine;
  options.progress = ShowOn(bar);
  TRY(const ImatrixReport report, MakeImatrix(options));
  bar.Clear();
  Output output(STDOUT_FILENO);
  if (flags.common.json) return output.Write(ImatrixAsJson(options, report).Dump() + "\n");
  return output.Write(ImatrixText(options, report));
}

}  // namespace

void AddImatrix(CommandLine& line) {
  const auto flags = std::make_shared<ImatrixFlags>();
  ImatrixOptions& options = flags->options;
  Flags command = line.AddCommand("imatrix", "measure on text which weights of the experts matter",
                                  [flags] { return ExitCode(Run(*flags)); });
  command.Footer(
      "Writes an importance matrix in llama.cpp's GGUF format, for 'moestro quantize --imatrix'. "
      "Of the routed experts alone: dense matrices are left out. docs/imatrix.md describes it.\n"
      "Example: moestro imatrix model.gguf --text story.txt --text code.txt -o text.imatrix");
  command.Add("MODEL", options.model, "GGUF file").Required();
  command.Add("--text", options.texts, "text to read; several are added up")
      .Type("FILE")
      .Required();
  command.Add("-n,--tokens", options.tokens, "at most this many tokens of each of them").Positive();
  command.Add("-o,--output", options.path, "file to write").Type("FILE").Required();
  AddCommonFlags(command, flags->common);
}

}  // namespace moestro
