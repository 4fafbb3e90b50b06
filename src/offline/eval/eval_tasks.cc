// SPDX-License-Identifier: MIT
#include "offline/eval/eval_tasks.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/text.h"
#include "engine/append.h"
#include "load/open_engine.h"
#include "model/token_stream.h"
#include "model/vocab.h"
#include "offline/eval/eval.h"
#include "offline/eval/eval_stats.h"
#include "offline/eval/task_items.h"
#include "text/divergence.h"
#include "text/text_loop.h"
#include "text/text_tokens.h"

namespace moestro {
namespace {

struct Question {
  std::string text;
  std::string shown_answer;          // in a shot
  std::vector<std::string> choices;  // the best one first; empty: the answer is a number
  std::string number;
};

struct Questions {
  std::string_view question_word;
  std::string_view answer_word;
  std::vector<Question> items;
};

// An item as tokens. Each choice is the whole text; its answer begins at the first token that
// differs from the prompt's.
struct AskedTokens {
  std::vector<Token> prompt;
  std::vector<std::vector<Token>> choices;

  size_t longest() const {
    size_t most = prompt.size();
    for (const std::vector<Token>& tokens : choices) most = std::max(most, tokens.size());
    return most;
  }
};

Result<Questions> ReadQuestions(const TaskRequest& request) {
  TRY(const std::string text, ReadSmallText(request.path));
  Questions questions;
  if (request.task == Task::kTruthfulQa) {
    questions = {.question_word = "Q", .answer_word = "A", .items = {}};
    TRY(std::vector<ChoiceItem> items, ParseTruthfulQa(text, request.path));
    for (ChoiceItem& item : items) {
      item.incorrect.insert(item.incorrect.begin(), item.best);
      questions.items.push_back({.text = std::move(item.question),
                                 .shown_answer = std::move(item.best),
                                 .choices = std::move(item.incorrect),
                                 .number = {}});
    }
  } else {
    questions = {.question_word = "Question", .answer_word = "Answer", .items = {}};
    TRY(std::vector<NumberItem> items, ParseGsm8k(text, request.path));
    for (NumberItem& item : items) {
      questions.items.push_back({.text = std::move(item.question),
                                 .shown_answer = std::move(item.answer),
                                 .choices = {},
                                 .number = std::move(item.number)});
    }
  }
  if (questions.items.size() > request.shots) return questions;
  return Fail(Errc::kInvalidRequest, "{}: has {} items, none is left after {} shots", request.path,
              questions.items.size(), request.shots);
}

// Prompt with all shots, then the question up to the begin of its answer.
std::string PromptOf(const Questions& questions, size_t item, uint32_t shots) {
  std::string text;
  for (size_t i = 0; i < shots; ++i) {
    const Question& shot = questions.items[i];
    text += Format("{}: {}\n{}: {}\n\n", questions.question_word, shot.text, questions.answer_word,
                   shot.shown_answer);
  }
  return text + Format("{}: {}\n{}:", questions.question_word, questions.items[item].text,
                       questions.answer_word);
}

// Tokenizes until one token more than the context holds, in small pieces, because an engine may
// hold most of the memory.
Result<std::vector<Token>> TokensOf(const Vocab& vocab, std::string_view text, uint32_t n_ctx) {
  TokenStream stream(vocab, FromText(text),
                     {.add_special = false, .longest_piece_bytes = 32 * kKiB});
  TRY(const std::vector<Token> rest, Collect(stream, uint64_t{n_ctx} + 1));
  std::vector<Token> tokens = vocab.begin_tokens();
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

Result<AskedTokens> Tokenize(const TaskRequest& request, const Questions& questions, size_t item,
                             const Vocab& vocab, uint32_t n_ctx) {
  const std::string prompt = PromptOf(questions, item, request.shots);
  AskedTokens asked;
  TRY(asked.prompt, TokensOf(vocab, prompt, n_ctx));
  for (const std::string& choice : questions.items[item].choices) {
    TRY(std::vector<Token> tokens, TokensOf(vocab, prompt + " " + choice, n_ctx));
    asked.choices.push_back(std::move(tokens));
  }
  return asked;
}

struct Selection {
  std::vector<size_t> items;
  uint64_t too_long = 0;
};

// Selects the items that fit the context. Their tokens are not kept: with many shots they would
// take more memory than the file.
Result<Selection> Select(const TaskRequest& request, const Questions& questions, const Vocab& vocab,
                         uint32_t n_ctx) {
  const size_t n = questions.items.size();
  const size_t end =
      request.limit > 0 ? std::min<size_t>(n, uint64_t{request.shots} + request.limit) : n;
  Selection selection;
  for (size_t item = request.shots; item < end; ++item) {
    TRY(const AskedTokens asked, Tokenize(request, questions, item, vocab, n_ctx));
    const uint64_t room = asked.choices.empty() ? request.answer_tokens : 0;
    if (asked.longest() + room > n_ctx) {
      ++selection.too_long;
    } else {
      selection.items.push_back(item);
    }
  }
  return selection;
}

// Summed log-probabilities of the choices' answers. The common beginning of all choices is
// evaluated once, as a prompt, but for its last token, after which the first answer's
// log-probability is known.
Result<std::vector<double>> LogProbsOf(Engine& engine, Sequence& sequence,
                                       const AskedTokens& asked) {
  // Begins of the answers; at least 1, because a text's first token has no probability.
  std::vector<size_t> begins;
  for (const std::vector<Token>& tokens : asked.choices) {
    begins.push_back(std::max<size_t>(CommonPrefix(asked.prompt, tokens), 1));
  }
  const size_t shared = std::ranges::min(begins) - 1;
  sequence.CutBack(0);
  if (shared > 0) {
    TRY_STATUS(Append(engine, sequence, std::span(asked.prompt).first(shared)));
    sequence.Keep();
  }
  std::vector<float> row(engine.facts().n_vocab);
  std::vector<double> sums;
  for (size_t c = 0; c < asked.choices.size(); ++c) {
    const std::span<const Token> tokens(asked.choices[c]);
    TRY_STATUS(CutBackTo(engine, sequence, static_cast<uint32_t>(shared)));
    double sum = 0.0;
    for (size_t i = shared; i + 1 < tokens.size(); ++i) {
      TRY(const std::span<const float> logits, Append(engine, sequence, tokens.subspan(i, 1)));
      if (i + 1 < begins[c]) continue;
      LogSoftmax(logits, row);
      sum += row[static_cast<size_t>(tokens[i + 1])];
    }
    sums.push_back(sum);
  }
  return sums;
}

class CollectedText final : public TextReader {
 public:
  bool Tell(TextEvent event) override {
    if (const auto* piece = std::get_if<TextPiece>(&event)) text_ += piece->text;
    return true;
  }
  std::string& text() { return text_; }

 private:
  std::string text_;
};

// Text that the model writes if it always takes the likeliest token, until it begins a new
// question.
Result<std::string> Written(Engine& engine, Sequence& sequence, const Vocab& vocab,
                            std::span<const Token> prompt, uint32_t most) {
  sequence.CutBack(0);
  const TextOptions options{.prompt = {prompt.begin(), prompt.end()},
                            .generate = {.max_tokens = most, .stops = {"Question:"}}};
  const auto pick = [](std::span<const float> logits, std::span<const Token>) -> Result<Token> {
    return static_cast<Token>(Largest(logits));
  };
  CollectedText kept;
  const Clock clock = SteadySeconds;
  LoneText lone(engine, std::make_unique<RunningText>(kept, options, std::move(sequence), pick,
                                                      &vocab, clock));
  lone.Write();
  sequence = lone.text().TakeSequence();
  TRY(const StopReason reason, *lone.text().ending());
  if (reason == StopReason::kInterrupted) return Fail(Errc::kInterrupted, "interrupted");
  return std::move(kept.text());
}

Result<ItemOutcome> Ask(const TaskRequest& request, Engine& engine, Sequence& sequence,
                        const Vocab& vocab, const AskedTokens& asked) {
  ItemOutcome outcome{.answer = {}, .log_probs = {}};
  if (asked.choices.empty()) {
    TRY(const std::string text,
        Written(engine, sequence, vocab, asked.prompt, request.answer_tokens));
    outcome.answer = FinalNumber(text).value_or("");
    return outcome;
  }
  TRY(outcome.log_probs, LogProbsOf(engine, sequence, asked));
  // Takes the last of the likeliest choices: only a best answer that is likelier than all others is
  // right.
  const auto likeliest = std::ranges::max_element(outcome.log_probs, std::ranges::less_equal());
  outcome.answer = Format("{}", likeliest - outcome.log_probs.begin());
  return outcome;
}

Result<TaskRun> RunItems(const TaskRequest& request, EngineOptions options, const Vocab& vocab,
                         const Questions& questions, const std::vector<size_t>& items) {
  TRY(ModelToLoad model, ModelToLoad::Open(request.model, options.engine));
  TRY_STATUS(model.CheckDecodesAlone("an evaluation"));
  options.caller_bytes += uint64_t{model.n_vocab()} * sizeof(float);
  for (const size_t item : items) {
    // Bytes of the outcomes, in a list that grows by doubling.
    options.caller_bytes +=
        2 * (sizeof(ItemOutcome) + questions.items[item].choices.size() * sizeof(double));
  }
  TRY(const std::unique_ptr<Engine> engine,
      OpenEngine(std::move(model), options, request.progress));
  engine->SetProgress({});  // each prompt's bar would replace the progress of the items
  Sequence sequence = engine->NewSequence();
  TaskRun run{.items = {}, .report = {}};
  for (const size_t item : items) {
    TRY(const AskedTokens asked, Tokenize(request, questions, item, vocab, engine->n_ctx()));
    TRY(ItemOutcome outcome, Ask(request, *engine, sequence, vocab, asked));
    outcome.item = item;
    outcome.is_right =
        outcome.answer == (asked.choices.empty() ? questions.items[item].number : "0");
    run.items.push_back(std::move(outcome));
    if (request.progress) request.progress("questions", run.items.size(), items.size());
  }
  TRY(run.report, MakeReport(*engine, sequence, true));
  return run;
}

// Compares the outcomes of two runs. REQUIRES: both have the same items.
TaskResult::Against Compare(const TaskRun& exact, const TaskRun& run) {
  TaskResult::Against against{.right = exact.right()};
  for (size_t i = 0; i < run.items.size(); ++i) {
    const ItemOutcome& before = exact.items[i];
    const ItemOutcome& now = run.items[i];
    if (before.answer != now.answer) ++against.changed;
    if (now.is_right && !before.is_right) ++against.gained;
    if (!now.is_right && before.is_right) ++against.lost;
  }
  return against;
}

}  // namespace

uint64_t TaskRun::right() const {
  return static_cast<uint64_t>(std::ranges::count(items, true, &ItemOutcome::is_right));
}

Result<TaskResult> RunTask(const TaskRequest& request) {
  TRY(const Questions questions, ReadQuestions(request));
  TRY(const ModelToLoad model, ModelToLoad::Open(request.model, request.engine.engine));
  TRY(const Vocab vocab, Vocab::Load(model.gguf()));
  const uint32_t n_ctx = std::min(request.engine.ctx, model.n_ctx_train());
  TRY(const Selection selection, Select(request, questions, vocab, n_ctx));
  if (selection.items.empty()) {
    return Fail(Errc::kInvalidRequest,
                "{}: none of {} items fits a context of {}; raise --ctx (this model allows {}), or "
                "take fewer --shots or --answer-tokens",
                request.path, selection.too_long, n_ctx, model.n_ctx_train());
  }
  std::optional<TaskRun> exact;
  if (request.against_exact) {
    TRY(exact, RunItems(request, ExactOf(request.engine), vocab, questions, selection.items));
  }
  TaskResult result{.too_long = selection.too_long, .run = {}, .against = {}};
  TRY(result.run, RunItems(request, request.engine, vocab, questions, selection.items));
  if (exact) result.against = Compare(*exact, result.run);
  return result;
}

}  // namespace moestro
