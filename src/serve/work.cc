// SPDX-License-Identifier: MIT
#include "serve/work.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <variant>

#include "base/number.h"
#include "base/terminal.h"
#include "base/work_limit.h"
#include "chat/answer_grammar.h"
#include "chat/chat_format.h"
#include "model/token_stream.h"
#include "schema/schema_grammar.h"
#include "text/text_tokens.h"

namespace moestro {
namespace {

constexpr size_t kLongestPiece = 32 * kKiB;  // see Session::Tokenize()
// Most tokens of one text, unless the context holds more: the list takes 1 MiB.
constexpr uint64_t kMostTokens = uint64_t{1} << 18;

}  // namespace

bool IsHopeless(const ReadyModel& model, size_t bytes) {
  const uint64_t longest = model.vocab.longest_token_bytes();
  return longest > 0 && bytes / longest > model.card.n_ctx;
}

ApiError TooManyBytes(const ReadyModel& model, size_t bytes) {
  return ContextExceeded(
      {.prompt = bytes / model.vocab.longest_token_bytes(), .most = model.card.n_ctx});
}

namespace {

// The first tokens, with those that end every text.
std::vector<Token> CutToContext(const ReadyModel& model, std::vector<Token> tokens) {
  const std::vector<Token> end = model.vocab.MissingEnd({});
  tokens.resize(model.card.n_ctx - std::min<size_t>(end.size(), model.card.n_ctx));
  tokens.append_range(end);
  return tokens;
}

}  // namespace

ApiResult<std::vector<Token>> TokensOf(const ReadyModel& model, const std::string& text,
                                       TokenWish wish, const WorkLimit& limit) {
  if (!wish.cuts && IsHopeless(model, text.size())) {
    return std::unexpected(TooManyBytes(model, text.size()));
  }
  TokenStream stream(model.vocab, FromText(text),
                     {.add_special = wish.add_special,
                      .parse_special = wish.parse_special,
                      .longest_piece_bytes = kLongestPiece});
  const uint64_t most = std::max<uint64_t>(kMostTokens, model.card.n_ctx);
  std::vector<Token> all;
  while (all.size() <= most) {
    if (const Status status = limit.Look(); !status) {
      return std::unexpected(ToApiError(status.error()));
    }
    const Result<std::vector<Token>> next = stream.Next();
    if (!next) return std::unexpected(ToApiError(next.error()));
    if (next->empty()) {
      all.shrink_to_fit();
      return all;
    }
    all.insert(all.end(), next->begin(), next->end());
    if (wish.cuts && all.size() > model.card.n_ctx) return CutToContext(model, std::move(all));
  }
  return std::unexpected(ContextExceeded({.prompt = all.size(), .most = model.card.n_ctx}));
}

ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const std::string& text,
                                           const WorkLimit& limit) {
  return TokensOf(model, text, {}, limit);
}

ApiResult<std::vector<Token>> PromptTokens(const ReadyModel& model, const RenderedChat& chat,
                                           const WorkLimit& limit) {
  if (chat.plain.empty()) return PromptTokens(model, chat.prompt, limit);
  std::vector<Token> all;
  const auto add = [&](size_t from, size_t to, bool parses) -> ApiStatus {
    if (from == to) return {};
    TRY(const auto tokens, TokensOf(model, chat.prompt.substr(from, to - from),
                                    {.add_special = false, .parse_special = parses}, limit));
    all.insert(all.end(), tokens.begin(), tokens.end());
    return {};
  };
  size_t at = 0;
  for (const TextPart& part : chat.plain) {
    TRY_STATUS(add(at, part.begin, true));
    TRY_STATUS(add(part.begin, part.end, false));
    at = part.end;
  }
  TRY_STATUS(add(at, chat.prompt.size(), true));
  model.vocab.AddSpecial(all);
  return all;
}

namespace {

// Fewer tokens are computed as quickly as a state is kept.
constexpr uint32_t kWorthKeeping = 16;
// The number of tokens that a conversation shares with the prompt; 0 if it cannot be rendered.
uint32_t Shared(const ReadyModel& model, const ChatInput& chat, std::span<const Token> prompt,
                const WorkLimit& limit) {
  const Result<RenderedChat> rendered = model.format.Render(chat, {}, limit);
  if (!rendered) return 0;
  const ApiResult<std::vector<Token>> tokens = PromptTokens(model, *rendered, limit);
  return tokens ? static_cast<uint32_t>(CommonPrefix(*tokens, prompt)) : 0;
}

}  // namespace

std::vector<uint32_t> CheckpointsOf(const ReadyModel& model, const ChatInput& chat,
                                    std::span<const Token> prompt, const WorkLimit& limit) {
  std::vector<uint32_t> positions;
  for (const ChatInput& other : LikelyBeginnings(chat)) {
    positions.push_back(Shared(model, other, prompt, limit));
  }
  std::ranges::sort(positions);
  const auto again = std::ranges::unique(positions);
  positions.erase(again.begin(), again.end());
  std::erase_if(positions, [&](uint32_t n) { return n < kWorthKeeping || n >= prompt.size(); });
  return positions;
}

uint64_t RandomBits() {
  std::random_device device;
  return (uint64_t{device()} << 32U) | device();
}

namespace {

// The field that the answer's grammar comes from; empty: none does.
std::string GrammarField(const ApiRequest& request) {
  if (request.form.kind != OutputForm::Kind::kText) return request.form.field;
  return request.chat.tools.empty() ? "" : "tools";
}

// The error of a conversation without a prompt. Of template and schema only the schema has a field
// to name.
ApiError RenderError(const Error& error, const OutputForm& form, const WorkLimit& limit) {
  ApiError told = ToApiError(error);
  if (!limit.status()) return told;
  const bool has_schema = form.kind == OutputForm::Kind::kJsonSchema;
  const auto unsaid =
      form.is_strict ? GrammarRules::Unsaid::kRefused : GrammarRules::Unsaid::kLeftOut;
  if (has_schema && !GrammarRules(limit, unsaid).AddSchema(form.definition, "answer")) {
    told.param = form.field;
  }
  return told;
}

void WarnOfLeftOut(const std::vector<std::string>& left_out, ApiRequest& request) {
  const std::string field = GrammarField(request);
  for (const std::string& what : left_out) {
    request.warnings.push_back(Format("{} {} is not held to", field, Printable(what, 200)));
  }
}

// The fewest bytes of a conversation's prompt, whatever the template adds.
size_t BytesOf(const ChatInput& chat) {
  size_t bytes = 0;
  for (const ChatTurn& turn : chat.turns) {
    bytes += turn.content.size() + turn.reasoning.size();
    for (const ToolCall& call : turn.calls) bytes += call.name.size() + call.arguments.size();
  }
  for (const Tool& tool : chat.tools) bytes += tool.description.size() + tool.parameters.size();
  return bytes;
}

ApiResult<RenderedChat> RenderChat(const ReadyModel& model, const ApiRequest& request,
                                   const WorkLimit& limit) {
  if (const size_t bytes = BytesOf(request.chat); IsHopeless(model, bytes)) {
    return std::unexpected(TooManyBytes(model, bytes));
  }
  // Each turn or tool takes a kilobyte while it is rendered, and at least a token.
  const size_t parts = request.chat.turns.size() + request.chat.tools.size();
  if (parts > model.card.n_ctx) {
    return std::unexpected(ContextExceeded({.prompt = parts, .most = model.card.n_ctx}));
  }
  Result<RenderedChat> chat = model.format.Render(request.chat, request.form, limit);
  if (!chat) return std::unexpected(RenderError(chat.error(), request.form, limit));
  return *std::move(chat);
}

// Marks of thoughts and calls may be control tokens.
bool ReadsMarks(const AnswerStyle& style) {
  return style.calls.shape != CallShape::kNone || !style.reasoning_begin.empty();
}

// The values of a job that follow from a prompt and from the chat format.
struct JobInputs {
  std::vector<Token> prompt;
  std::vector<uint32_t> checkpoints = {};
  SamplingOptions sampling;
  std::vector<std::string> stops;
  QuietText quiet = {};
  std::optional<uint32_t> scored_from = {};
};

// An answer needs room for one token at least.
ApiStatus CheckRoom(const ReadyModel& model, const ApiRequest& request, size_t n_prompt) {
  if (n_prompt == 0) return BadRequest("prompt", "the prompt is empty");
  const bool wants_answer = request.max_tokens != 0;
  if (n_prompt + (wants_answer ? 1 : 0) <= model.card.n_ctx) return {};
  const bool fits_alone = n_prompt == model.card.n_ctx;
  return std::unexpected(ContextExceeded(
      {.prompt = n_prompt, .answer = fits_alone ? 1U : 0U, .most = model.card.n_ctx}));
}

std::vector<Token> EarlyEnds(const ReadyModel& model, const ApiRequest& request) {
  if (request.min_tokens == 0) return {};
  std::vector<Token> ends = request.stop_tokens;
  for (uint32_t i = 0; i < model.vocab.size(); ++i) {
    if (model.vocab.is_end(static_cast<Token>(i))) ends.push_back(static_cast<Token>(i));
  }
  return ends;
}

// The shorter of the client's and the server's limits; 0: no limit.
double SecondsOf(const ReadyModel& model, const ApiRequest& request) {
  if (request.seconds == 0.0 || model.request_seconds == 0.0) {
    return std::max(request.seconds, model.request_seconds);
  }
  return std::min(request.seconds, model.request_seconds);
}

QuietText QuietOf(const ThoughtMarks& marks) {
  return {.begin = marks.begin,
          .end = marks.end,
          .is_open = marks.is_open,
          .is_anywhere = marks.is_anywhere};
}

// The number of a prompt's first tokens that are not in its text.
uint32_t AddedTokens(const ReadyModel& model, const std::string& text,
                     const std::vector<Token>& tokens) {
  const std::string begin = model.vocab.begin_text();
  if (text.starts_with(begin) && model.vocab.has_token(begin)) return 0;
  const auto added = model.vocab.begin_tokens().size();
  return static_cast<uint32_t>(std::min(added, tokens.size()));
}

// Makes jobs from a body.
class Preparation {
 public:
  Preparation(const ReadyModel& model, Work& work, const WorkLimit& limit)
      : model_(model), work_(work), limit_(limit) {}

  ApiStatus AddChat() {
    const double before = limit_.seconds_left();
    TRY(RenderedChat chat, RenderChat(model_, work_.request, limit_));
    TRY(std::vector<Token> tokens, PromptTokens(model_, chat, limit_));
    TRY_STATUS(CheckRoom(model_, work_.request, tokens.size()));
    const double spent = before - limit_.seconds_left();
    work_.style = std::move(chat.style);
    WarnOfLeftOut(chat.left_out, work_.request);
    JobInputs plan{.prompt = std::move(tokens),
                   .sampling = work_.request.sampling,
                   .stops = work_.request.stops,
                   .quiet = QuietOf(chat.grammar_sleeps_in)};
    // Checkpoints need two more renderings; a prompt whose own took most of the time goes without.
    const bool has_time = !(limit_.seconds_left() < 4 * spent);
    if (model_.keeps_states && work_.request.cache_prompt && has_time) {
      plan.checkpoints = CheckpointsOf(model_, work_.request.chat, plan.prompt, limit_);
    }
    plan.sampling.grammar = std::move(chat.grammar);
    plan.sampling.grammar_triggers = std::move(chat.grammar_triggers);
    plan.stops.insert(plan.stops.end(), chat.stops.begin(), chat.stops.end());
    return AddJobs(plan);
  }

  ApiStatus AddCompletions() {
    SamplingOptions sampling = work_.request.sampling;
    Result<AnswerGrammar> grammar = MakeAnswerGrammar({}, {}, work_.request.form, false, limit_);
    if (!grammar) {
      return std::unexpected(RenderError(grammar.error(), work_.request.form, limit_));
    }
    sampling.grammar = std::move(grammar->text);
    WarnOfLeftOut(grammar->left_out, work_.request);
    for (ApiPrompt& prompt : work_.request.prompts) {
      JobInputs plan{.prompt = {}, .sampling = sampling, .stops = work_.request.stops};
      TRY_STATUS(SetPrompt(std::exchange(prompt, std::string()), plan));
      TRY_STATUS(AddJobs(plan));
    }
    return {};
  }

 private:
  ApiStatus SetPrompt(ApiPrompt prompt, JobInputs& plan) {
    const bool echoes = work_.request.echo;
    uint32_t added = 0;
    if (auto* text = std::get_if<std::string>(&prompt)) {
      TRY(plan.prompt, PromptTokens(model_, *text, limit_));
      added = AddedTokens(model_, *text, plan.prompt);
      if (echoes) work_.echoes.push_back(std::move(*text));
    } else {
      plan.prompt = std::get<std::vector<Token>>(std::move(prompt));
      TRY_STATUS(CheckRoom(model_, work_.request, plan.prompt.size()));
      std::string echo;
      for (const Token token : plan.prompt) {
        if (echoes) echo += model_.vocab.Spelling(token);
      }
      if (echoes) work_.echoes.push_back(std::move(echo));
    }
    // Scores begin where the echo does: added tokens have none.
    if (echoes && work_.request.logprobs) plan.scored_from = added;
    return {};
  }

  // Counts the bytes that a job holds while it waits.
  ApiStatus Keep(const JobInputs& plan) {
    const SamplingOptions& sampling = plan.sampling;
    const bool looks_back = sampling.repeat_penalty != 1.0F || sampling.presence_penalty != 0.0F ||
                            sampling.frequency_penalty != 0.0F || sampling.dry_multiplier != 0.0F;
    size_t bytes = plan.prompt.size() * sizeof(Token);
    bytes += 2 * work_.request.stop_tokens.size() * sizeof(Token);
    bytes += sampling.logit_bias.size() * sizeof(sampling.logit_bias.front());
    if (looks_back) bytes += model_.card.n_ctx * 4 * sizeof(Token);
    for (const std::string& stop : plan.stops) bytes += stop.size();
    if (!work_.echoes.empty()) bytes += work_.echoes.back().size();
    work_.kept_bytes += bytes;
    if (work_.kept_bytes > Preparing::kKeptBytes) {
      return BadRequest("prompt", Format("the prompts need more than {} MiB of memory; send them "
                                         "in several requests",
                                         Preparing::kKeptBytes / kMiB));
    }
    if (work_.kept->GrowTo(work_.kept_bytes)) return {};
    return std::unexpected(
        ApiError{.status = 503,
                 .type = "unavailable_error",
                 .message = "requests that wait take all the memory there is for them; ask again",
                 .code = "no_room"});
  }

  // Makes the sampler without the grammar, which the scheduler opens when the text begins.
  ApiResult<Sampler> MakeSampler(SamplingOptions options, uint32_t answer) const {
    const auto& asked = work_.request.seed;
    options.seed = (asked ? *asked : static_cast<uint32_t>(RandomBits())) + answer;
    Result<Sampler> sampler =
        Sampler::CreateWith(nullptr, options, model_.vocab, model_.card.n_vocab, model_.card.n_ctx);
    if (!sampler) return std::unexpected(ToApiError(sampler.error()));
    return *std::move(sampler);
  }

  // One for each answer to the prompt.
  ApiStatus AddJobs(const JobInputs& plan) {
    TRY_STATUS(CheckRoom(model_, work_.request, plan.prompt.size()));
    for (uint32_t answer = 0; answer < work_.request.n; ++answer) {
      TRY_STATUS(Keep(plan));
      TRY_STATUS(AddJob(plan, answer));
    }
    return {};
  }

  ApiStatus AddJob(JobInputs plan, uint32_t answer) {
    const ApiRequest& request = work_.request;
    const SamplingOptions& sampling = plan.sampling;
    if (!work_.grammar && !sampling.grammar.empty()) {
      work_.grammar = std::make_shared<Grammar>(sampling.grammar, sampling.grammar_triggers);
    }
    // Marks that break sequences off are looked for in the whole vocabulary, for each job.
    if (const Status status = limit_.Look(); !status) {
      return std::unexpected(ToApiError(status.error()));
    }
    TRY(Sampler sampler, MakeSampler(sampling, answer));
    JobOptions options{
        .text = {.prompt = std::move(plan.prompt),
                 .generate = {.max_tokens = request.max_tokens, .stops = std::move(plan.stops)},
                 .spells_control = ReadsMarks(work_.style),
                 .wants_logprobs = request.logprobs,
                 .top_logprobs = request.top_logprobs,
                 .checkpoints = plan.checkpoints,
                 .end_tokens = request.stop_tokens,
                 .min_tokens = request.min_tokens,
                 .early_ends = EarlyEnds(model_, request),
                 .scored_from = plan.scored_from,
                 .wants_progress = request.stream && request.return_progress,
                 .writing_seconds = request.writing_seconds},
        .uses_prefixes = request.cache_prompt,
        .grammar = work_.grammar,
        .quiet = std::move(plan.quiet),
        .seconds = SecondsOf(model_, request)};
    work_.jobs.push_back(std::make_shared<Job>(std::move(options), std::move(sampler)));
    return {};
  }

  const ReadyModel& model_;
  Work& work_;
  const WorkLimit& limit_;
};

// The texts, which are tokens by now, would stay as long as the answer takes.
void DropTexts(ApiRequest& request) {
  request.chat.turns = {};
  request.chat.template_arguments = {};
  request.sampling.grammar = {};
  request.sampling.logit_bias = {};
  request.stops = {};
  if (request.kind == ApiKind::kResponses) return;  // this API repeats its tools in replies
  for (Tool& tool : request.chat.tools)
    tool = {.name = std::move(tool.name), .description = {}, .parameters = {}};
}

ApiStatus CheckForm(const OutputForm& form) {
  const bool is_schema = form.kind == OutputForm::Kind::kJsonSchema;
  const size_t most = is_schema ? GrammarRules::kLongestSchema : GrammarRules::kLongestText;
  if (form.definition.size() <= most) return {};
  return BadRequest(form.field, Format("{} bytes are too long for this field (at most {})",
                                       form.definition.size(), most));
}

ApiStatus CheckContext(const ReadyModel& model, const ApiRequest& request) {
  const uint64_t asked = request.needed_context;
  if (asked <= model.card.n_ctx) return {};
  return BadRequest("options.num_ctx", Format("{} tokens are more than this server's {}; see --ctx",
                                              asked, model.card.n_ctx));
}

// Takes the body, which would stay as long as the answer takes.
ApiResult<Work> PrepareWork(const ReadyModel& model, ApiKind kind, std::string body,
                            const RecallItems& recall, const WorkLimit& limit) {
  if (const Status status = limit.Look(); !status) {
    return std::unexpected(ToApiError(status.error()));
  }
  TRY(ApiRequest request,
      ParseApiRequest(kind, body, model.card.n_vocab, ApiPurpose::kAnswer, limit, recall));
  std::string().swap(body);
  for (const std::string& field : request.ignored) LogInfo("a request's {} is ignored", field);
  TRY_STATUS(CheckForm(request.form));
  TRY_STATUS(CheckContext(model, request));
  Work work{.request = std::move(request), .id_seed = RandomBits()};
  if (work.request.is_load) return work;
  work.kept = std::make_unique<BodyRoom::Share>(model.preparing.kept());
  work.kept_bytes = work.request.items.size();
  Preparation preparation(model, work, limit);
  TRY_STATUS(GoesOn(work.request) ? preparation.AddCompletions() : preparation.AddChat());
  DropTexts(work.request);
  return work;
}

// Takes as long as a trial does.
ApiStatus CheckGrammar(const ReadyModel& model, const Work& work) {
  if (!work.grammar) return {};
  const Status checked = model.grammars.Check(*work.grammar, model.preparing.is_over());
  if (checked) return {};
  ApiError error = ToApiError(checked.error());
  if (error.status == 400) error.param = GrammarField(work.request);
  return std::unexpected(std::move(error));
}

}  // namespace

uint32_t PromptLength(const Work& work) {
  size_t tokens = 0;
  for (size_t i = 0; i < work.jobs.size(); i += work.request.n) {
    tokens += work.jobs[i]->prompt().size();
  }
  return static_cast<uint32_t>(tokens);
}

ApiResult<Work> MakeWork(const ReadyModel& model, ApiKind kind, std::string body,
                         const std::string& owner) {
  Preparing::Turn turn = model.preparing.Begin(body.size());
  const RecallItems recall = RecallFrom(model.responses, owner, turn.limit());
  TRY(Work work, PrepareWork(model, kind, std::move(body), recall, turn.limit()));
  turn.FreeLane();
  TRY_STATUS(CheckGrammar(model, work));
  work.submitted = SteadySeconds();
  TRY_STATUS(model.scheduler.Submit(work.jobs));
  return work;
}

ApiResult<RenderedChat> RenderedPrompt(const ReadyModel& model, const PromptBody& asked,
                                       const WorkLimit& limit) {
  TRY(const ApiRequest request, ParseApiRequest(asked.kind, asked.body, model.card.n_vocab,
                                                ApiPurpose::kInput, limit, asked.recall));
  return RenderChat(model, request, limit);
}

}  // namespace moestro
