// SPDX-License-Identifier: MIT
#include "serve/embed_answer.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/number.h"
#include "base/work_limit.h"
#include "serve/answer.h"
#include "serve/embed_work.h"
#include "serve/work.h"

namespace moestro {
namespace {

constexpr std::chrono::milliseconds kLookForClient{100};  // between two checks for its end
// Bytes of a value while its request is answered: the float, its copy, and the number as text.
constexpr size_t kValueBytes = 2 * sizeof(float) + 12;

ApiKind KindOf(EmbedApi api) {
  return api == EmbedApi::kOpenAi ? ApiKind::kChat : ApiKind::kOllamaChat;
}

ApiError NoEmbeddings(const ServedModel& model) {
  ApiError error = NotOffered("embeddings");
  error.message = Format("{}: {}", model.id, model.no_embeddings);
  return error;
}

ApiError TimeIsOver(double seconds) {
  return {
      .status = 504,
      .type = "timeout_error",
      .message = Format("the request's {} s were over before all its texts had embeddings; send "
                        "fewer, ask when the server is less busy, or allow more time",
                        seconds),
      .code = "timeout"};
}

// The tokens of one input, which fit the context.
ApiResult<std::vector<Token>> TokensOfInput(const ReadyModel& model, EmbedInput input,
                                            bool truncates, const WorkLimit& limit) {
  std::vector<Token> tokens;
  if (const auto* text = std::get_if<std::string>(&input)) {
    // A text is no prompt: control tokens that it spells are words.
    TRY(tokens, TokensOf(model, *text,
                         {.add_special = true, .parse_special = false, .cuts = truncates}, limit));
  } else {
    tokens = std::get<std::vector<Token>>(std::move(input));
  }
  if (tokens.size() <= model.card.n_ctx && !tokens.empty()) return tokens;
  if (tokens.empty()) return BadRequest("input", "a text of \"input\" has no tokens");
  return std::unexpected(ContextExceeded({.prompt = tokens.size(), .most = model.card.n_ctx}));
}

// A request after parsing, with the memory that it keeps until its reply.
struct Asked {
  EmbedRequest request;  // without the inputs
  std::vector<std::vector<Token>> texts = {};
};

ApiResult<Asked> Prepare(const ReadyModel& model, EmbedApi api, const std::string& body,
                         BodyRoom::Share& kept) {
  const Preparing::Turn turn = model.preparing.Begin(body.size());
  TRY(EmbedRequest request,
      ParseEmbedRequest(api, body, {.n_vocab = model.card.n_vocab, .n_embd = model.card.n_embd},
                        turn.limit()));
  Asked asked;
  size_t bytes = request.inputs.size() * model.card.n_embd * kValueBytes;
  for (EmbedInput& input : request.inputs) {
    TRY(std::vector<Token> tokens,
        TokensOfInput(model, std::move(input), request.truncates, turn.limit()));
    bytes += tokens.size() * sizeof(Token);
    if (bytes > Preparing::kKeptBytes) {
      return BadRequest("input", Format("the texts need more than {} MiB of memory; send them in "
                                        "several requests",
                                        Preparing::kKeptBytes / kMiB));
    }
    if (!kept.GrowTo(bytes)) {
      return std::unexpected(
          ApiError{.status = 503,
                   .type = "unavailable_error",
                   .message = "requests that wait take all the memory there is for them; ask again",
                   .code = "no_room"});
    }
    asked.texts.push_back(std::move(tokens));
  }
  request.inputs.clear();
  asked.request = std::move(request);
  return asked;
}

// nullopt: the client has gone.
std::optional<ApiResult<Embeddings>> Await(const ReadyModel& model, EmbedTask& task,
                                           const HttpRequest& request) {
  const double deadline = model.request_seconds > 0.0 ? SteadySeconds() + model.request_seconds
                                                      : std::numeric_limits<double>::infinity();
  while (true) {
    if (auto done = task.Wait(kLookForClient)) return done;
    const bool is_over = SteadySeconds() > deadline;
    if (!is_over && !request.is_gone()) continue;
    task.Cancel();
    if (!is_over) return std::nullopt;
    return std::unexpected(TimeIsOver(model.request_seconds));
  }
}

}  // namespace

HttpReply AnswerEmbeddings(const ReadyModel& model, EmbedApi api, HttpRequest& request) {
  const auto fail = [&](const ApiError& error) {
    return ErrorReply(KindOf(api), error, *request.record);
  };
  if (model.card.n_embd == 0) return fail(NoEmbeddings(model.card));
  const double began = SteadySeconds();
  BodyRoom::Share kept(model.preparing.kept());
  ApiResult<Asked> asked = Prepare(model, api, std::exchange(request.body, {}), kept);
  if (!asked) return fail(asked.error());
  Embeddings done;
  if (!asked->texts.empty()) {
    const auto task = std::make_shared<EmbedTask>(std::move(asked->texts));
    if (const ApiStatus put = model.scheduler.Submit(task); !put) return fail(put.error());
    auto computed = Await(model, *task, request);
    if (!computed) return {};
    if (!*computed) return fail(computed->error());
    done = **std::move(computed);
  }
  request.record->prompt_tokens = static_cast<uint32_t>(done.prompt_tokens);
  done.seconds = SteadySeconds() - began;
  done = Finished(api, asked->request, std::move(done));
  return {.body = EmbeddingsBody(api, asked->request, model.card.id, done)};
}

}  // namespace moestro
