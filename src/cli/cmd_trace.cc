// SPDX-License-Identifier: MIT
#include "cli/cmd_trace.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <format>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "cli/common_flags.h"
#include "cli/output.h"
#include "cli/random_tokens.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/text_input.h"
#include "engine/engine.h"
#include "engine/route_recorder.h"
#include "model/vocab.h"
#include "trace/import_jsonl.h"
#include "trace/summary.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

struct TraceOptions {
  CommonOptions common;
  std::string input;  // a model, or a trace to summarise
  std::vector<std::string> texts;
  std::optional<std::string> jsonl;
  std::optional<uint32_t> experts;
  std::string output;
  uint32_t tokens = 0;   // of each text; 0: all
  uint32_t prefill = 0;  // of each sequence
  uint32_t random = 0;   // tokens to record instead of a text's
  bool summary = false;
};

// A text longer than the context becomes several sequences.
Status RecordText(const TraceOptions& options, const std::string& path, const Vocab& vocab,
                  Engine& engine, RouteRecorder& recorder, ProgressBar& bar) {
  TRY(const std::string text, ReadTextFile(path));
  TRY(std::vector<Token> tokens, vocab.Tokenize(text, true, false));
  if (options.tokens > 0 && tokens.size() > options.tokens) tokens.resize(options.tokens);
  std::span<const Token> rest = tokens;
  while (!rest.empty()) {
    const auto part = rest.first(std::min<size_t>(rest.size(), engine.n_ctx()));
    // In steps, so that a progress bar moves.
    TRY_STATUS(recorder.Record(part, options.prefill));
    rest = rest.subspan(part.size());
    bar.Update(std::filesystem::path(path).filename().string(), tokens.size() - rest.size(),
               tokens.size());
  }
  return {};
}

Result<Trace> RecordAll(const TraceOptions& options) {
  ProgressBar bar(ProgressBar::Stderr());
  TRY(const std::unique_ptr<Engine> engine,
      Engine::Open(options.input, options.common.engine, ShowOn(bar)));
  const MemoryPlan& memory = engine->memory();
  TRY(Trace empty,
      Trace::Create({.model = std::filesystem::path(options.input).filename().string(),
                     .model_id = engine->model_id(),
                     .expert_bytes = memory.all_experts / std::max<uint64_t>(memory.n_experts, 1),
                     .n_layer = engine->spec().n_layer,
                     .n_expert = engine->spec().router.n_expert,
                     .n_used = engine->spec().router.n_used,
                     .depth = engine->max_look_ahead(),
                     .has_weights = true}));
  RouteRecorder recorder(*engine, std::move(empty));
  if (options.random > 0) {
    const uint32_t n = std::min(options.random, engine->n_ctx());
    TRY_STATUS(recorder.Record(
        RandomTokens(options.common.seed.value_or(kDefaultSeed), n, engine->spec().n_vocab),
        options.prefill));
  }
  if (options.texts.empty()) return recorder.trace();
  TRY(const Vocab vocab, Vocab::Load(options.input));
  for (const std::string& path : options.texts) {
    TRY_STATUS(RecordText(options, path, vocab, *engine, recorder, bar));
  }
  bar.Clear();
  return recorder.trace();
}

Result<Trace> FindTrace(const TraceOptions& options) {
  if (options.jsonl) {
    if (!options.input.empty()) {
      return Fail(Errc::kUsage, "--from-jsonl takes no model; leave out '{}'", options.input);
    }
    return ImportJsonl(*options.jsonl, options.experts);
  }
  if (options.input.empty()) return Fail(Errc::kUsage, "name a model, or a trace for --summary");
  if (options.texts.empty() && options.random == 0) {
    if (options.summary && options.output.empty()) return ReadTrace(options.input);
    return Fail(Errc::kUsage, "give a text to record: --text FILE");
  }
  return RecordAll(options);
}

Status Run(const TraceOptions& options) {
  if (options.output.empty() && !options.summary) {
    return Fail(Errc::kUsage, "say where the trace goes (-o FILE), or ask for its --summary");
  }
  TRY(const Trace trace, FindTrace(options));
  if (!options.output.empty()) TRY_STATUS(WriteTrace(options.output, trace));
  if (!options.summary) return {};
  return Output(STDOUT_FILENO).Write(Describe(trace.info(), Summarise(trace)));
}

}  // namespace

CLI::App* AddTrace(CLI::App& app, std::function<int()>& action) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* trace = app.add_subcommand("trace", "record which experts a text is routed to");
  trace->footer(
      "The text is evaluated as if the model had written it, token by token. docs/trace-format.md "
      "describes the file.\n"
      "Examples: moestro trace model.gguf --text story.txt -o story.trace\n"
      "          moestro trace --from-jsonl routing.jsonl --experts 64 -o routing.trace\n"
      "          moestro trace --summary story.trace");
  trace->add_option("INPUT", options->input, "GGUF file; with --summary alone, a trace");
  trace->add_option("--text", options->texts, "text to evaluate; several make several sequences")
      ->type_name("FILE");
  trace->add_option("--from-jsonl", options->jsonl, "import routing, a JSON object per line")
      ->type_name("FILE");
  trace->add_option("--experts", options->experts, "experts per layer of --from-jsonl")
      ->check(CLI::PositiveNumber);
  trace->add_option("-o,--output", options->output, "the trace")->type_name("FILE");
  trace->add_option("-n,--tokens", options->tokens, "at most this many tokens of each text")
      ->check(CLI::PositiveNumber);
  trace
      ->add_option("--random", options->random,
                   "record this many random tokens, for models without a vocabulary")
      ->type_name("N");
  trace->add_option("--prefill", options->prefill,
                    "tokens at the start of each sequence evaluated at once, as a prompt");
  trace->add_flag("--summary", options->summary,
                  "popularity, reuse, working set and predictability");
  AddCommonFlags(*trace, options->common);
  trace->callback([options, &action] { action = [options] { return ExitCode(Run(*options)); }; });
  return trace;
}

}  // namespace moestro
