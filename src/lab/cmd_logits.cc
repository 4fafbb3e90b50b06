// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/terminal.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "engine/append.h"
#include "engine/engine.h"
#include "lab/commands.h"
#include "load/open_engine.h"
#include "model/vocab.h"
#include "text/text_tokens.h"

namespace moestro {
namespace {

struct LogitsOptions {
  CommonOptions common;
  std::string model;
  std::vector<Token> tokens;
  std::optional<std::string> prompt;
  bool all = false;
  uint32_t top = 10;
  bool every = false;   // logits after each token, to `output`
  bool decode = false;  // one by one
  OutputPath output;
};

Result<std::vector<Token>> ParseTokens(std::string_view text) {
  std::vector<Token> tokens;
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    const std::optional<Token> token = ParseNumber<Token>(rest.substr(0, comma));
    if (!token) {
      return Fail(Errc::kUsage, "'{}' is not a list of token ids; write for example 1,2,3", text);
    }
    tokens.push_back(*token);
    if (comma == std::string_view::npos) return tokens;
    rest.remove_prefix(comma + 1);
  }
}

Json TopLogits(std::span<const float> logits, size_t count) {
  std::vector<Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t kept = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](Token a, Token b) {
                      const float first = logits[static_cast<size_t>(a)];
                      const float second = logits[static_cast<size_t>(b)];
                      return first != second ? first > second : a < b;
                    });
  Json top = Json::Array();
  for (const Token token : std::span(order).first(kept)) {
    Json entry = Json::Object();
    entry.Set("token", token).Set("logit", double{logits[static_cast<size_t>(token)]});
    top.Push(std::move(entry));
  }
  return top;
}

// Tokenizes with a vocabulary that is freed before the engine takes its memory.
Result<std::vector<Token>> TokenizePrompt(const LogitsOptions& options, const ModelToLoad& model) {
  const EngineOptions& engine = options.common.engine;
  TRY(const Vocab vocab, Vocab::Load(model.gguf()));
  const uint32_t n_ctx_train = model.n_ctx_train();
  TRY(Prompt prompt,
      ReadPrompt(vocab, FromText(*options.prompt),
                 {.n_ctx = std::min(engine.ctx, n_ctx_train), .n_ctx_train = n_ctx_train}, engine));
  return std::move(prompt.tokens);
}

// A matrix of F32, row after row.
class RowFile {
 public:
  static Result<RowFile> Create(const OutputPath& path) {
    TRY(OutputFile file, OutputFile::Create(path));
    return RowFile(std::move(file));
  }
  // Keeps the first error until Finish().
  void Add(std::span<const float> row) {
    if (status_) status_ = file_.Write(std::as_bytes(row));
  }
  Status Finish() {
    TRY_STATUS(std::move(status_));
    TRY_STATUS(file_.Publish());
    file_.Keep();
    return {};
  }

 private:
  explicit RowFile(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  Status status_;
};

// Evaluates the tokens and gives the logits after each to `sink`.
Status EvaluateEvery(const LogitsOptions& options, Engine& engine, Sequence& sequence,
                     const Engine::LogitsSink& sink) {
  const std::span<const Token> tokens(options.tokens);
  if (!options.decode) {
    return engine.Step(RowsOf(sequence, tokens, RowKind::kPrompt, true), sink);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    TRY_STATUS(engine.Step(RowsOf(sequence, tokens.subspan(i, 1), RowKind::kDecode), sink));
  }
  return {};
}

// Writes the logits after every token to the file, and the file's layout to standard output.
Status RunEvery(const LogitsOptions& options, Engine& engine) {
  TRY(RowFile file, RowFile::Create(options.output));
  Sequence sequence = engine.NewSequence();
  TRY_STATUS(EvaluateEvery(options, engine, sequence,
                           [&](size_t, std::span<const float> logits) { file.Add(logits); }));
  TRY_STATUS(file.Finish());
  Json object = Json::Object();
  object.Set("tokens", Json::Array(std::span<const int32_t>(options.tokens)))
      .Set("rows", options.tokens.size())
      .Set("columns", engine.facts().n_vocab)
      .Set("output", options.output.text());
  return Output(STDOUT_FILENO).Write(object.Dump() + "\n");
}

// The logits after the last of the tokens, valid until the next step.
Result<std::span<const float>> EvaluateLast(const LogitsOptions& options, Engine& engine,
                                            Sequence& sequence) {
  const std::span<const Token> tokens(options.tokens);
  if (!options.decode) return Append(engine, sequence, tokens);
  std::span<const float> logits;
  for (size_t i = 0; i < tokens.size(); ++i) {
    TRY(logits, Append(engine, sequence, tokens.subspan(i, 1)));
  }
  return logits;
}

Status Run(LogitsOptions& options) {
  if (options.prompt.has_value() == !options.tokens.empty()) {
    return Fail(Errc::kUsage, "give either --tokens or -p");
  }
  if (options.every == options.output.empty()) {
    return Fail(Errc::kUsage, "--every writes to a file: give both, --every -o FILE");
  }
  TRY_STATUS(ApplyQuality(options.common.quality, options.model, options.common.engine));
  TRY(ModelToLoad model, ModelToLoad::Open(options.model, options.common.engine.engine));
  if (options.prompt) {
    TRY(options.tokens, TokenizePrompt(options, model));
  }
  ProgressBar bar(ProgressBar::Stderr());
  TRY(const std::unique_ptr<Engine> engine,
      OpenEngine(std::move(model), options.common.engine, ShowOn(bar)));
  if (options.every) return RunEvery(options, *engine);
  Sequence sequence = engine->NewSequence();
  TRY(const std::span<const float> logits, EvaluateLast(options, *engine, sequence));
  bar.Clear();
  Json object = Json::Object();
  object.Set("tokens", Json::Array(std::span<const int32_t>(options.tokens)));
  object.Set("logits", options.all ? Json::Array(logits) : TopLogits(logits, options.top));
  return Output(STDOUT_FILENO).Write(object.Dump() + "\n");
}

}  // namespace

void AddLogits(CommandLine& line) {
  auto options = std::make_shared<LogitsOptions>();
  Flags logits =
      line.AddCommand(CommandNamed("logits"), [options] { return ExitCode(Run(*options)); });
  logits.Footer(
      "Prints {\"tokens\":[...],\"logits\":[...]}: with --all the logit of every token id in "
      "order, "
      "otherwise\nthe largest ones as {\"token\":ID,\"logit\":VALUE}. With --every -o FILE the "
      "logits after each token go to a\nfile of F32, a row of the whole vocabulary per token.\n"
      "Examples: moestro logits model.gguf --tokens 1,2,3 --top 5\n"
      "          moestro logits model.gguf -p \"Once upon a time\" --every --decode -o F.f32");
  logits.Add("MODEL", options->model, "GGUF file").Required();
  logits.AddParsed("--tokens", "ID,ID,...", "the tokens to evaluate",
                   [options](const std::string& text) -> Status {
                     TRY(options->tokens, ParseTokens(text));
                     return {};
                   });
  logits.Add("-p,--prompt", options->prompt, "text to evaluate instead of --tokens");
  const Flag all = logits.AddSwitch("--all", options->all, "all logits of the last position");
  logits.Add("--top,--top-k", options->top, "how many of the largest logits")
      .Positive()
      .Excludes(all)
      .ShowDefault();
  logits.AddSwitch("--every", options->every, "the logits after each token, to -o FILE")
      .Excludes(all);
  logits.AddSwitch("--decode", options->decode,
                   "evaluate the tokens one by one, as text that is being written");
  logits.AddOutput("-o,--output", options->output, "where the logits of --every go");
  AddCommonFlags(logits, options->common);
  AddQualityFlags(logits, options->common.quality);
}

}  // namespace moestro
