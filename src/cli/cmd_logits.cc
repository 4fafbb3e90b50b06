// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "engine/append.h"
#include "engine/engine.h"
#include "model/model_file.h"
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
};

Result<std::vector<Token>> ParseTokens(std::string_view text) {
  std::vector<Token> tokens;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    Token token = 0;
    const auto [stop, error] = std::from_chars(at, end, token);
    if (error != std::errc{} || (stop != end && *stop != ',')) {
      return Fail(Errc::kUsage, "'{}' is not a list of token ids; write for example 1,2,3", text);
    }
    tokens.push_back(token);
    if (stop == end) return tokens;
    at = stop + 1;
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

// The vocabulary is gone again when the engine takes its memory.
Result<std::vector<Token>> TokenizePrompt(const LogitsOptions& options, const ModelFile& model) {
  const EngineOptions& engine = options.common.engine;
  TRY(const Vocab vocab, Vocab::Load(model.gguf));
  const uint32_t n_ctx_train = model.spec.n_ctx_train;
  TRY(Prompt prompt,
      ReadPrompt(vocab, FromText(*options.prompt),
                 {.n_ctx = std::min(engine.ctx, n_ctx_train), .n_ctx_train = n_ctx_train}, engine));
  return std::move(prompt.tokens);
}

Status Run(LogitsOptions& options) {
  if (options.prompt.has_value() == !options.tokens.empty()) {
    return Fail(Errc::kUsage, "give either --tokens or -p");
  }
  TRY(ModelFile model, ModelFile::Open(options.model));
  if (options.prompt) {
    TRY(options.tokens, TokenizePrompt(options, model));
  }
  ProgressBar bar(ProgressBar::Stderr());
  TRY(const std::unique_ptr<Engine> engine,
      Engine::Open(std::move(model), options.common.engine, ShowOn(bar)));
  Sequence sequence = engine->NewSequence();
  TRY(const std::span<const float> logits, Append(*engine, sequence, options.tokens));
  bar.Clear();
  Json object = Json::Object();
  object.Set("tokens", Json::Array(std::span<const int32_t>(options.tokens)));
  object.Set("logits", options.all ? Json::Array(logits) : TopLogits(logits, options.top));
  return Output(STDOUT_FILENO).Write(object.Dump() + "\n");
}

}  // namespace

void AddLogits(CommandLine& line) {
  auto options = std::make_shared<LogitsOptions>();
  Flags logits = line.AddCommand("logits", "logits after some tokens, as JSON",
                                 [options] { return ExitCode(Run(*options)); });
  logits.Footer(
      "Prints {\"tokens\":[...],\"logits\":[...]}: with --all the logit of every token id in "
      "order, "
      "otherwise\nthe largest ones as {\"token\":ID,\"logit\":VALUE}.\n"
      "Example: moestro logits model.gguf --tokens 1,2,3 --top 5");
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
  AddCommonFlags(logits, options->common);
}

}  // namespace moestro
