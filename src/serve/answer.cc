// SPDX-License-Identifier: MIT
#include "serve/answer.h"

#include <chrono>
#include <ctime>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "chat/answer_grammar.h"
#include "chat/answer_parser.h"
#include "grammar/schema_grammar.h"
#include "model/token_stream.h"
#include "serve/job.h"

namespace moestro {
namespace {

constexpr std::chrono::milliseconds kPatience{100};  // how soon a client is missed
constexpr std::chrono::seconds kPingEvery{5};
constexpr size_t kLongestPiece = 32 * kKiB;  // see Session::Tokenize()

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32U) | device();
}

// What a request has become: a job for each prompt, and how to read the answers.
struct Work {
  ApiRequest request;
  AnswerStyle style;
  std::vector<std::shared_ptr<Job>> jobs;
  std::shared_ptr<const Grammar> grammar;  // of all jobs; null: none
  std::vector<std::string> echoes;         // of completions: each job's prompt as text
};

// Withdraws what has not ended when the reply does.
class JobGuard {
 public:
  JobGuard(Scheduler& scheduler, std::vector<std::shared_ptr<Job>> jobs)
      : scheduler_(scheduler), jobs_(std::move(jobs)) {}
  ~JobGuard() {
    for (const auto& job : jobs_) scheduler_.Withdraw(*job);
  }
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;
  // The first one that is left has ended.
  void Ended() { jobs_.erase(jobs_.begin()); }

 private:
  Scheduler& scheduler_;
  std::vector<std::shared_ptr<Job>> jobs_;
};

FinishReason ReasonOf(StopReason reason, bool has_calls) {
  const bool is_cut = reason == StopReason::kLimit || reason == StopReason::kContextFull;
  if (is_cut) return FinishReason::kLength;
  return has_calls ? FinishReason::kToolCalls : FinishReason::kStop;
}

// One answer's way from events to deltas.
class ChoiceReader {
 public:
  explicit ChoiceReader(const Work& work)
      : is_chat_(work.request.kind != ApiKind::kCompletion), parser_(work.style, RandomNumber()) {}

  ReplyPart Read(JobText text) {
    ReplyPart part;
    part.logprobs = std::move(text.logprobs);
    if (is_chat_) {
      part.deltas = parser_.Push(text.text);
    } else if (!text.text.empty()) {
      part.deltas.emplace_back().text = std::move(text.text);
    }
    return part;
  }
  ReplyPart Rest() {
    ReplyPart part;
    if (is_chat_) part.deltas = parser_.Finish();
    return part;
  }
  ReplyEnd End(const JobEnd& end) const {
    return {.reason = ReasonOf(end.reason, is_chat_ && parser_.has_calls()),
            .stop = end.stop,
            .usage = end.usage};
  }

 private:
  bool is_chat_;
  AnswerParser parser_;
};

// The prompt as the answer's first part.
ReplyPart Echo(const Work& work, uint32_t choice) {
  ReplyPart part;
  part.deltas.emplace_back().text = work.echoes[choice];
  return part;
}

// How a reply reaches its client.
struct Client {
  std::function<bool(std::string_view)> write;  // false: it is gone
  std::function<bool()> is_gone;
  bool wants_pings = false;
};

// Waits for the job's next event, keeping the client awake; nullopt: the client is gone.
std::optional<JobEvent> NextEvent(Job& job, ReplyWriter& writer, const Client& client) {
  auto pinged = std::chrono::steady_clock::now();
  while (true) {
    if (std::optional<JobEvent> event = job.Next(kPatience)) return event;
    if (client.is_gone()) return std::nullopt;
    const auto now = std::chrono::steady_clock::now();
    if (!client.wants_pings || now - pinged < kPingEvery) continue;
    pinged = now;
    if (!client.write(writer.Ping())) return std::nullopt;
  }
}

// All choices in order, as the writer puts them. The error of a job that failed.
ApiStatus Relay(const Work& work, ReplyWriter& writer, const Client& client, JobGuard& guard) {
  if (!client.write(writer.Begin())) return {};
  for (uint32_t choice = 0; choice < work.jobs.size(); ++choice) {
    ChoiceReader reader(work);
    if (work.request.echo && !client.write(writer.Part(Echo(work, choice), choice))) return {};
    while (true) {
      std::optional<JobEvent> event = NextEvent(*work.jobs[choice], writer, client);
      if (!event) return {};
      if (auto* error = std::get_if<ApiError>(&*event)) return std::unexpected(std::move(*error));
      if (auto* text = std::get_if<JobText>(&*event)) {
        if (!client.write(writer.Part(reader.Read(std::move(*text)), choice))) return {};
        continue;
      }
      const auto& end = std::get<JobEnd>(*event);
      guard.Ended();
      const std::string last = writer.Part(reader.Rest(), choice);
      if (!client.write(last + writer.EndChoice(reader.End(end), choice))) return {};
      break;
    }
  }
  client.write(writer.End());
  return {};
}

// Longer than any prompt of the context could be, so that it need not be taken apart.
bool IsHopeless(const ReadyModel& model, size_t bytes) {
  const uint64_t longest = model.vocab.longest_token_bytes();
  return longest > 0 && bytes / longest > model.card.n_ctx;
}

ApiError TooManyBytes(const ReadyModel& model, size_t bytes) {
  return ContextExceeded(bytes / model.vocab.longest_token_bytes(), -1, model.card.n_ctx);
}

// The field that the answer's grammar comes from; empty: none does.
std::string GrammarField(const ApiRequest& request) {
  if (request.form.kind != OutputForm::Kind::kText) return request.form.field;
  return request.chat.tools.empty() ? "" : "tools";
}

// Why there is no prompt: of template and schema, only the latter has a field of its own.
ApiError RenderError(const Error& error, const OutputForm& form) {
  ApiError told = ToApiError(error);
  const bool has_schema = form.kind == OutputForm::Kind::kJsonSchema;
  if (has_schema && !GrammarRules().AddSchema(form.definition, "answer")) told.param = form.field;
  return told;
}

// Without the grammar, which the scheduler opens when the text begins.
ApiResult<Sampler> MakeSampler(const ReadyModel& model, SamplingOptions options,
                               const ApiRequest& request) {
  options.seed = request.seed ? *request.seed : static_cast<uint32_t>(RandomNumber());
  Result<Sampler> sampler =
      Sampler::CreateWith(nullptr, options, model.vocab, model.card.n_vocab, model.card.n_ctx);
  if (!sampler) return std::unexpected(ToApiError(sampler.error()));
  return *std::move(sampler);
}

// Takes as long as a trial does.
ApiStatus CheckGrammar(const ReadyModel& model, const Work& work) {
  if (!work.grammar) return {};
  const Status checked = model.grammars.Check(*work.grammar);
  if (checked) return {};
  ApiError error = ToApiError(checked.error());
  error.param = GrammarField(work.request);
  return std::unexpected(std::move(error));
}

// Marks of thoughts and calls may be control tokens.
bool ReadsMarks(const AnswerStyle& style) {
  return style.calls != CallFormat::kNone || !style.reasoning_begin.empty();
}

ApiStatus AddJob(const ReadyModel& model, Work& work, std::vector<Token> prompt,
                 const SamplingOptions& sampling, std::vector<std::string> stops) {
  const ApiRequest& request = work.request;
  if (prompt.empty()) return BadRequest("prompt", "the prompt is empty");
  if (prompt.size() > model.card.n_ctx) {
    return std::unexpected(ContextExceeded(prompt.size(), -1, model.card.n_ctx));
  }
  if (!work.grammar && !sampling.grammar.empty()) {
    work.grammar = std::make_shared<Grammar>(sampling.grammar, sampling.grammar_triggers);
  }
  ApiResult<Sampler> sampler = MakeSampler(model, sampling, request);
  if (!sampler) return std::unexpected(std::move(sampler).error());
  JobOptions options{.prompt = std::move(prompt),
                     .generate = {.max_tokens = request.max_tokens, .stops = std::move(stops)},
                     .spells_control = ReadsMarks(work.style),
                     .wants_logprobs = request.logprobs,
                     .top_logprobs = request.top_logprobs,
                     .uses_prefixes = request.cache_prompt,
                     .grammar = work.grammar};
  work.jobs.push_back(std::make_shared<Job>(std::move(options), *std::move(sampler)));
  return {};
}

size_t BytesOf(const ChatInput& chat) {
  size_t bytes = 0;
  for (const ChatTurn& turn : chat.turns) bytes += turn.content.size() + turn.reasoning.size();
  for (const Tool& tool : chat.tools) bytes += tool.description.size() + tool.parameters.size();
  return bytes;
}

ApiStatus AddChat(const ReadyModel& model, Work& work) {
  if (const size_t bytes = BytesOf(work.request.chat); IsHopeless(model, bytes)) {
    return std::unexpected(TooManyBytes(model, bytes));
  }
  Result<RenderedChat> chat = model.format.Render(work.request.chat, work.request.form);
  if (!chat) return std::unexpected(RenderError(chat.error(), work.request.form));
  ApiResult<std::vector<Token>> tokens = PromptTokens(model, chat->prompt);
  if (!tokens) return std::unexpected(std::move(tokens).error());
  work.style = chat->style;
  SamplingOptions sampling = work.request.sampling;
  sampling.grammar = std::move(chat->grammar);
  sampling.grammar_triggers = std::move(chat->grammar_triggers);
  std::vector<std::string> stops = work.request.stops;
  stops.insert(stops.end(), chat->stops.begin(), chat->stops.end());
  return AddJob(model, work, *std::move(tokens), sampling, std::move(stops));
}

ApiStatus AddCompletions(const ReadyModel& model, Work& work) {
  SamplingOptions sampling = work.request.sampling;
  Result<AnswerGrammar> grammar = MakeAnswerGrammar({}, {}, work.request.form, false);
  if (!grammar) return std::unexpected(RenderError(grammar.error(), work.request.form));
  sampling.grammar = std::move(grammar->text);
  for (const ApiPrompt& prompt : work.request.prompts) {
    std::vector<Token> tokens;
    std::string& echo = work.echoes.emplace_back();
    if (const auto* given = std::get_if<std::vector<Token>>(&prompt)) {
      tokens = *given;
      for (const Token token : tokens) echo += model.vocab.Spelling(token);
    } else {
      echo = std::get<std::string>(prompt);
      ApiResult<std::vector<Token>> made = PromptTokens(model, echo);
      if (!made) return std::unexpected(std::move(made).error());
      tokens = *std::move(made);
    }
    ApiStatus added = AddJob(model, work, std::move(tokens), sampling, work.request.stops);
    if (!added) return added;
  }
  return {};
}

// The texts, which are tokens by now, would stay as long as the answer takes.
void DropTexts(ApiRequest& request) {
  request.chat.turns = {};
  request.sampling.grammar = {};
  for (ApiPrompt& prompt : request.prompts) prompt = std::string();
}

ApiResult<Work> PrepareWork(const ReadyModel& model, ApiKind kind, std::string_view body) {
  const std::scoped_lock lock(model.preparing);
  ApiResult<ApiRequest> request = ParseApiRequest(kind, body, model.card.n_vocab);
  if (!request) return std::unexpected(std::move(request).error());
  for (const std::string& field : request->ignored) LogInfo("a request's {} is ignored", field);
  Work work{.request = *std::move(request), .style = {}, .jobs = {}, .grammar = {}, .echoes = {}};
  ApiStatus added =
      kind == ApiKind::kCompletion ? AddCompletions(model, work) : AddChat(model, work);
  if (!added) return std::unexpected(std::move(added).error());
  DropTexts(work.request);
  return work;
}

ApiResult<Work> MakeWork(const ReadyModel& model, ApiKind kind, std::string_view body) {
  TRY(Work work, PrepareWork(model, kind, body));
  TRY_STATUS(CheckGrammar(model, work));
  for (const auto& job : work.jobs) {
    ApiStatus submitted = model.scheduler.Submit(job);
    if (submitted) continue;
    for (const auto& other : work.jobs) model.scheduler.Withdraw(*other);
    return std::unexpected(std::move(submitted).error());
  }
  return work;
}

uint32_t PromptLength(const Work& work) {
  size_t tokens = 0;
  for (const auto& job : work.jobs) tokens += job->options().prompt.size();
  return static_cast<uint32_t>(tokens);
}

std::string RandomId() { return Format("{:016x}", RandomNumber()); }

HttpReply Streamed(const ReadyModel& model, const std::shared_ptr<Work>& work,
                   const std::shared_ptr<ReplyWriter>& writer) {
  HttpReply reply{.type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}};
  // Made here, so that jobs are withdrawn even if the stream never begins.
  auto guard = std::make_shared<JobGuard>(model.scheduler, work->jobs);
  reply.stream = [work, writer, guard](HttpStream& out) {
    const Client client{.write = [&](std::string_view bytes) { return out.Write(bytes); },
                        .is_gone = [&] { return !out.is_open(); },
                        .wants_pings = true};
    const ApiStatus status = Relay(*work, *writer, client, *guard);
    if (!status) client.write(writer->Failed(status.error()));
  };
  return reply;
}

HttpReply Whole(const ReadyModel& model, const Work& work, ReplyWriter& writer,
                const HttpRequest& request) {
  JobGuard guard(model.scheduler, work.jobs);
  HttpReply reply;
  const Client client{.write =
                          [&](std::string_view bytes) {
                            reply.body += bytes;
                            return true;
                          },
                      .is_gone = request.is_gone};
  const ApiStatus status = Relay(work, writer, client, guard);
  return status ? reply : ErrorReply(work.request.kind, status.error());
}

}  // namespace

HttpReply ErrorReply(ApiKind kind, const ApiError& error) {
  HttpReply reply{.status = error.status,
                  .body = kind == ApiKind::kMessages ? MessagesErrorBody(error) : ErrorBody(error)};
  // OpenAI's clients ask again after any 5xx and 429; only waiting helps with the latter.
  if (error.status == 429 || error.status == 503) reply.headers.emplace_back("Retry-After", "2");
  if (error.status == 500 || error.status == 501) {
    reply.headers.emplace_back("x-should-retry", "false");
  }
  return reply;
}

ApiResult<std::vector<Token>> TokensOf(const ReadyModel& model, const std::string& text,
                                       bool add_special, bool parse_special) {
  if (IsHopeless(model, text.size())) return std::unexpected(TooManyBytes(model, text.size()));
  TokenStream stream(model.vocab, FromText(text),
                     {.add_special = add_special,
                      .parse_special = parse_special,
                      .longest_piece_bytes = kLongestPiece});
  Result<std::vector<Token>> tokens = Collect(stream, std::numeric_limits<uint64_t>::max());
  if (!tokens) return std::unexpected(ToApiError(tokens.error()));
  return *std::move(tokens);
}

ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const std::string& text) {
  const std::string begin = model.vocab.begin_text();
  return TokensOf(model, text, begin.empty() || !text.starts_with(begin), true);
}

HttpReply AnswerRequest(const ReadyModel& model, ApiKind kind, const HttpRequest& request) {
  ApiResult<Work> made = MakeWork(model, kind, request.body);
  if (!made) return ErrorReply(kind, made.error());
  const auto work = std::make_shared<Work>(*std::move(made));
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const ReplyHead head{.id = RandomId(),
                       .model = model.card.id,
                       .fingerprint = {},
                       .created = now,
                       .prompt_tokens = PromptLength(*work)};
  const std::shared_ptr<ReplyWriter> writer = MakeReplyWriter(work->request, head);
  if (work->request.stream) return Streamed(model, work, writer);
  return Whole(model, *work, *writer, request);
}

}  // namespace moestro
