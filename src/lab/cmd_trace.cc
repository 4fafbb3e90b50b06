// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "core/random_tokens.h"
#include "lab/commands.h"
#include "lab/record_report.h"
#include "offline/record/record_texts.h"
#include "trace/summary.h"
#include "trace/trace.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

struct TraceOptions {
  CommonOptions common;
  std::string input;  // a model, or a trace to summarise
  std::vector<std::string> texts;
  std::optional<std::string> jsonl;
  std::optional<uint32_t> experts;
  OutputPath output;
  uint32_t tokens = 0;   // of each text; 0: all
  uint32_t prefill = 0;  // of each sequence
  uint32_t random = 0;   // tokens to record instead of a text's
  bool summary = false;
  bool candidates = false;  // record the next best experts, too
  std::optional<Shard> shard;
};

// A trace that exists already: imported, or one to summarise; nullopt: a text is to be recorded.
Result<std::optional<Trace>> FindTrace(const TraceOptions& options) {
  if (options.jsonl) {
    if (!options.input.empty()) {
      return Fail(Errc::kUsage, "--from-jsonl takes no model; leave out '{}'", options.input);
    }
    return ImportJsonl(*options.jsonl, options.experts);
  }
  if (options.input.empty()) return Fail(Errc::kUsage, "name a model, or a trace for --summary");
  if (!options.texts.empty() || options.random > 0) return std::nullopt;
  if (options.summary && options.output.empty()) return ReadTrace(options.input);
  return Fail(Errc::kUsage, "give a text to record: --text FILE");
}

// Opens the file of the trace that is recorded; a shard's trace goes behind the shard's head.
Result<TraceWriter> OpenWriter(const TraceOptions& options, const TextsToRecord& read) {
  if (!read.shard) return TraceWriter::Create(options.output, read.info, read.tokens);
  TRY(BinaryWriter file,
      BeginShard(options.output, *read.shard, TraceBytes(read.info, read.tokens)));
  return TraceWriter::Create(std::move(file), read.info, read.tokens);
}

Status ReportShard(const TraceOptions& options, const ShardInfo& shard) {
  if (shard.range().size() == 0) TRY_STATUS(WriteShard(options.output, shard, {}));
  return Output(STDOUT_FILENO).Write(ShardText(shard, options.output.text(), options.common.json));
}

// Writes the trace as it is recorded. Returns the trace only for a summary, which needs all of it;
// the plan includes its memory.
Result<std::optional<Trace>> Record(const TraceOptions& options) {
  std::optional<TraceWriter> writer;
  std::optional<Trace> kept;
  const auto open = [&](const TextsToRecord& read) -> Result<TraceSink> {
    if (!options.output.empty()) {
      TRY(TraceWriter created, OpenWriter(options, read));
      writer.emplace(std::move(created));
    }
    if (options.summary) {
      TRY(kept, Trace::Create(read.info));
      kept->Reserve(read.tokens);
    }
    return [&](const TraceToken& token) -> Status {
      if (kept) TRY_STATUS(kept->Add(token));
      return writer ? writer->Add(token) : Status();
    };
  };
  // Bytes for the id, weight and predictions of an expert, and for its distance to the last use
  // while summing up.
  const uint64_t pass = sizeof(ExpertId) * (1 + options.common.engine.prefetch) + sizeof(float);
  const uint64_t bytes = pass * (options.common.engine.little.is_on() ? 2 : 1) + 3 * sizeof(double);
  std::optional<ShardRequest> shard;
  if (options.shard) shard = {.command = ShardOf::kTrace, .shard = *options.shard};
  ProgressBar bar(ProgressBar::Stderr());
  TRY(const std::optional<ShardInfo> recorded,
      RecordTexts({.model = options.input,
                   .engine = options.common.engine,
                   .texts = options.texts,
                   .random = options.random,
                   .seed = options.common.seed.value_or(kDefaultSeed),
                   .tokens = options.tokens,
                   .details = true,
                   .candidates = options.candidates,
                   .prefill = options.prefill,
                   .shard = shard,
                   .bytes_per_expert = options.summary ? bytes : 0,
                   .progress = ShowOn(bar)},
                  open));
  bar.Clear();
  if (writer) TRY_STATUS(writer->Finish());
  if (recorded) TRY_STATUS(ReportShard(options, *recorded));
  return kept;
}

Status Run(TraceOptions& options) {
  if (options.output.empty() && !options.summary) {
    return Fail(Errc::kUsage, "say where the trace goes (-o FILE), or ask for its --summary");
  }
  const LittleOptions& little = options.common.engine.little;
  if (little != LittleOptions{.n_used = little.n_used, .is_half = little.is_half}) {
    return Fail(Errc::kUsage,
                "a trace holds both passes of every token, so --gamma and --little-misses decide "
                "nothing here; give them to 'moestro sim'");
  }
  if (options.shard && options.summary) {
    return Fail(Errc::kUsage, "a shard has no --summary; sum up what 'moestro merge' makes of all");
  }
  TRY(std::optional<Trace> trace, FindTrace(options));
  if (options.shard && trace) {
    return Fail(Errc::kUsage, "--shard is a share of texts, give some with --text FILE");
  }
  if (options.shard) {
    TRY_STATUS(CheckShardOutput(options.output));
  }
  if (!trace) {
    TRY_STATUS(ApplyQuality(options.common.quality, options.input, options.common.engine));
    TRY(trace, Record(options));
  } else if (!options.output.empty()) {
    TRY_STATUS(WriteTrace(options.output, *trace));
  }
  if (!options.summary) return {};
  return Output(STDOUT_FILENO).Write(Describe(trace->info(), Summarise(*trace)));
}

}  // namespace

void AddTrace(CommandLine& line) {
  auto options = std::make_shared<TraceOptions>();
  Flags trace =
      line.AddCommand(CommandNamed("trace"), [options] { return ExitCode(Run(*options)); });
  trace.Footer(
      "The text is evaluated as if the model had written it, token by token; with --little first "
      "with N\nexperts, then with all of them, and both are recorded. docs/trace-format.md "
      "describes the file.\n"
      "Examples: moestro trace model.gguf --text story.txt -o story.trace\n"
      "          moestro trace model.gguf --text story.txt --little half -o story.trace\n"
      "          moestro trace --from-jsonl routing.jsonl --experts 64 -o routing.trace\n"
      "          moestro trace --summary story.trace");
  trace.Add("MODEL", options->input, "GGUF file; with --summary alone, a trace");
  trace.Add("--text", options->texts, "text to evaluate; several make several sequences")
      .Type("FILE");
  trace.Add("--from-jsonl", options->jsonl, "import routing, a JSON object per line").Type("FILE");
  trace.Add("--experts", options->experts, "experts per layer of --from-jsonl").Positive();
  trace.AddOutput("-o,--output", options->output, "the trace");
  trace.Add("-n,--tokens", options->tokens, "at most this many tokens of each text").Positive();
  trace
      .Add("--random", options->random,
           "record this many random tokens, for models without a vocabulary")
      .Type("N");
  trace.Add("--prefill", options->prefill,
            "tokens at the start of each sequence evaluated at once, as a prompt");
  trace.AddSwitch("--candidates", options->candidates,
                  "record also who else could run, for 'moestro sim --prefer-resident'");
  trace.AddSwitch("--summary", options->summary,
                  "popularity, reuse, working set and predictability");
  AddShardFlag(trace, options->shard);
  AddCommonFlags(trace, options->common);
  AddQualityFlags(trace, options->common.quality);
}

}  // namespace moestro
