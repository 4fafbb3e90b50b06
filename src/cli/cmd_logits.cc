// SPDX-License-Identifier: MIT
#include "cli/cmd_logits.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
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
#include "cli/common_flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/text_tokens.h"
#include "engine/engine.h"
#include "model/gguf_file.h"
#include "model/read_spec.h"
#include "model/vocab.h"

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
Result<std::vector<Token>> TokenizePrompt(const LogitsOptions& options) {
  const EngineOptions& engine = options.common.engine;
  // Our own reader goes first: it survives damaged files, libllama's need not.
  TRY(const GgufFile file, GgufFile::Open(options.model));
  TRY(const ModelSpec spec, ReadSpec(file));
  TRY(const Vocab vocab, Vocab::Load(options.model));
  TRY(Prompt prompt,
      ReadPrompt(vocab, FromText(*options.prompt),
                 {.n_ctx = std::min(engine.ctx, spec.n_ctx_train), .n_ctx_train = spec.n_ctx_train},
                 engine));
  return std::move(prompt.tokens);
}

Status Run(LogitsOptions& options) {
  if (options.prompt.has_value() == !options.tokens.empty()) {
    return Fail(Errc::kUsage, "give either --tokens or -p");
  }
  if (options.prompt) {
    TRY(options.tokens, TokenizePrompt(options));
  }
  ProgressBar bar(ProgressBar::Stderr());
  TRY(const std::unique_ptr<Engine> engine,
      Engine::Open(options.model, options.common.engine, ShowOn(bar)));
  TRY(const std::span<const float> logits, engine->Append(options.tokens));
  bar.Clear();
  Json object = Json::Object();
  object.Set("tokens", Json::Array(std::span<const int32_t>(options.tokens)));
  object.Set("logits", options.all ? Json::Array(logits) : TopLogits(logits, options.top));
  return Output(STDOUT_FILENO).Write(object.Dump() + "\n");
}

}  // namespace

CLI::App* AddLogits(CLI::App& app, std::function<int()>& action) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* logits = app.add_subcommand("logits", "logits after some tokens, as JSON");
  logits->footer(
      "Prints {\"tokens\":[...],\"logits\":[...]}: with --all the logit of every token id in "
      "order, "
      "otherwise\nthe largest ones as {\"token\":ID,\"logit\":VALUE}.\n"
      "Example: moestro logits model.gguf --tokens 1,2,3 --top 5");
  logits->add_option("MODEL", options->model, "GGUF file")->required();
  AddParsedFlag(*logits, "--tokens", "ID,ID,...", "the tokens to evaluate",
                [options](const std::string& text) -> Status {
                  TRY(options->tokens, ParseTokens(text));
                  return {};
                });
  logits->add_option("-p,--prompt", options->prompt, "text to evaluate instead of --tokens");
  CLI::Option* all = logits->add_flag("--all", options->all, "all logits of the last position");
  logits->add_option("--top,--top-k", options->top, "how many of the largest logits")
      ->check(CLI::PositiveNumber)
      ->excludes(all)
      ->capture_default_str();
  AddCommonFlags(*logits, options->common);
  logits->callback([options, &action] { action = [options] { return ExitCode(Run(*options)); }; });
  return logits;
}

}  // namespace moestro
