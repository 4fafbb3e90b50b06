// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <memory>

#include "base/terminal.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "lab/commands.h"
#include "lab/record_report.h"
#include "offline/record/imatrix.h"

namespace moestro {
namespace {

struct ImatrixFlags {
  CommonOptions common;
  ImatrixOptions options;
};

Status Run(ImatrixFlags& flags) {
  ImatrixOptions& options = flags.options;
  TRY_STATUS(CheckAllExperts("imatrix", flags.common.engine));
  if (options.shard) {
    TRY_STATUS(CheckShardOutput(options.path));
  }
  ProgressBar bar(ProgressBar::Stderr());
  options.engine = flags.common.engine;
  options.progress = ShowOn(bar);
  TRY(const ImatrixReport report, MakeImatrix(options));
  bar.Clear();
  Output output(STDOUT_FILENO);
  const bool is_json = flags.common.json;
  if (report.shard) return output.Write(ShardText(*report.shard, options.path.text(), is_json));
  if (is_json) return output.Write(ImatrixAsJson(options.path.text(), report).Dump() + "\n");
  return output.Write(DescribeImatrix(options.path.text(), report));
}

}  // namespace

void AddImatrix(CommandLine& line) {
  const auto flags = std::make_shared<ImatrixFlags>();
  ImatrixOptions& options = flags->options;
  Flags command =
      line.AddCommand(CommandNamed("imatrix"), [flags] { return ExitCode(Run(*flags)); });
  command.Footer(
      "Writes an importance matrix in llama.cpp's GGUF format, for 'moestro quantize --imatrix'. "
      "Of the routed experts alone: dense matrices are left out. docs/imatrix.md describes it.\n"
      "Example: moestro imatrix model.gguf --text story.txt --text code.txt -o text.imatrix");
  command.Add("MODEL", options.model, "GGUF file").Required();
  command.Add("--text", options.texts, "text to read; several are added up")
      .Type("FILE")
      .Required();
  command.Add("-n,--tokens", options.tokens, "at most this many tokens of each of them").Positive();
  command.AddOutput("-o,--output", options.path, "file to write").Required();
  AddShardFlag(command, options.shard);
  AddCommonFlags(command, flags->common);
}

}  // namespace moestro
