// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "lab/commands.h"
#include "lab/eval_report.h"
#include "lab/record_report.h"
#include "offline/eval/eval_stats.h"
#include "offline/gguf_output.h"
#include "offline/record/imatrix.h"
#include "offline/record/profile.h"
#include "offline/shard_file.h"

namespace moestro {
namespace {

struct MergeOptions {
  std::vector<std::string> shards;
  OutputPath output;
  OutputPath norms;
  bool json = false;
};

// Checks the outputs, which depend on the command that made the shards.
Status CheckOutputs(const MergeOptions& options, ShardOf command) {
  if (command == ShardOf::kEval && !options.output.empty()) {
    return Fail(Errc::kUsage, "what 'eval' measured is printed; leave out -o");
  }
  if (command != ShardOf::kEval && options.output.empty()) {
    return Fail(Errc::kUsage, "say where the result of '{}' goes (-o FILE)", CommandOf(command));
  }
  if (command != ShardOf::kProfile && !options.norms.empty()) {
    return Fail(Errc::kUsage, "--norms-output is for shards of 'profile', these are of '{}'",
                CommandOf(command));
  }
  TRY_STATUS(CheckFiles({.paths = options.output, .norms = options.norms}));
  for (const OutputPath* path : {&options.output, &options.norms}) {
    if (!path->empty()) TRY_STATUS(CheckMayWrite(*path, true));
  }
  return {};
}

// The text that the command itself would have printed for the whole run.
Result<std::string> Merge(const MergeOptions& options, const std::vector<FoundShard>& shards) {
  const auto as_text = [](const Json& json) { return json.Dump() + "\n"; };
  switch (shards.front().info.command) {
    case ShardOf::kEval: {
      TRY(const MergedEval merged, MergeEval(shards));
      return options.json ? as_text(FiguresAsJson(merged.figures, merged.windows))
                          : DescribeFigures(merged.figures, merged.windows);
    }
    case ShardOf::kImatrix: {
      TRY(const ImatrixReport report, MergeImatrices(shards, options.output));
      return options.json ? as_text(ImatrixAsJson(options.output.text(), report))
                          : DescribeImatrix(options.output.text(), report);
    }
    case ShardOf::kProfile: {
      TRY(const RecordedRouting routing, MergeProfile(shards));
      TRY(const Profile profile,
          LearnProfile(routing, routing.model, {.paths = options.output, .norms = options.norms}));
      return options.json ? as_text(ProfileAsJson(profile)) : DescribeProfile(profile);
    }
    case ShardOf::kTrace: {
      TRY(const uint64_t tokens, MergeTraces(shards, options.output));
      Json object = Json::Object();
      object.Set("trace", options.output.text()).Set("tokens", tokens);
      return options.json ? as_text(object)
                          : Format("trace    {} tokens, in {}\n", tokens, options.output.text());
    }
  }
  return std::string();
}

Status Run(const MergeOptions& options) {
  TRY(const std::vector<FoundShard> shards, FindShards(options.shards));
  TRY_STATUS(CheckOutputs(options, shards.front().info.command));
  TRY(const std::string text, Merge(options, shards));
  return Output(STDOUT_FILENO).Write(text);
}

}  // namespace

void AddMerge(CommandLine& line) {
  const auto options = std::make_shared<MergeOptions>();
  Flags merge =
      line.AddCommand(CommandNamed("merge"), [options] { return ExitCode(Run(*options)); });
  merge.Footer(
      "The shards are those of one run of 'eval', 'imatrix', 'profile' or 'trace' with --shard, "
      "all of them, in any order. The result is that of the run over the whole text. "
      "docs/shards.md describes the files.\n"
      "Examples: moestro trace model.gguf --text book.txt --shard 2/5 -o book.2.shard\n"
      "          moestro merge book.*.shard -o book.trace");
  merge.Add("FILE", options->shards, "shards").Required();
  merge.AddOutput("-o,--output", options->output,
                  "what the command would have written; not for 'eval'");
  merge.AddOutput("--norms-output", options->norms, "the norms of 'profile' (default: none)");
  merge.AddSwitch("--json", options->json, "machine-readable output: one JSON object");
}

}  // namespace moestro
