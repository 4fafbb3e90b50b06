// SPDX-License-Identifier: MIT
#include "grammar/grammar_checker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar_process.h"

namespace moestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSlack{10'000};   // beyond a trial's limit, for a busy machine
constexpr milliseconds kLookEvery{100};  // between two checks of ends_now()
constexpr uint32_t kTrialsAtOnce = 2;
constexpr int kShortShare = 8;  // a short trial's part of a trial's times
constexpr size_t kMostKnown = 64;
constexpr size_t kMostKnownBytes = size_t{4} << 20;

// A message to the child begins with a byte for the kind of work. Then come strings, each after its
// length, and a socket for the answers.
constexpr char kTrial = 't';
constexpr char kShortTrial = 's';
constexpr char kText = 'o';

std::string ToRequest(const Grammar& grammar) {
  std::string bytes;
  const auto append = [&bytes](const std::string& text) {
    AppendNumber(bytes, static_cast<uint32_t>(text.size()));
    bytes += text;
  };
  append(grammar.text);
  for (const std::string& trigger : grammar.triggers) append(trigger);
  return bytes;
}

Grammar FromRequest(std::string_view bytes) {
  std::vector<std::string> texts;
  while (bytes.size() >= sizeof(uint32_t)) {
    const size_t length = std::min<size_t>(TakeNumber(bytes), bytes.size());
    texts.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  if (texts.empty()) return {};
  Grammar grammar{std::move(texts.front()), {}};
  grammar.triggers.assign(std::next(texts.begin()), texts.end());
  return grammar;
}

[[noreturn]] void ServeTrial(MessageSocket socket, const Grammar& grammar, const Vocab& vocab,
                             const GrammarChecker::Limits& limits, int share) {
  GrammarLimits times = GrammarLimits::For(limits.n_tokens);
  times.opening /= share;
  times.token /= share;
  const auto work = [&] { return TryGrammar(grammar, vocab, limits.n_tokens, times); };
  const Trial trial = TryInChild(work, {.time = limits.trial / share, .memory = kGrammarMemory});
  socket.Write(static_cast<char>(trial.outcome) + trial.output, std::nullopt);
  _exit(EXIT_SUCCESS);
}

void ServeRequest(std::string_view request, MessageSocket answers, const Vocab& vocab,
                  const GrammarChecker::Limits& limits) {
  if (request.empty()) return;
  const char what = request.front();
  const Grammar grammar = FromRequest(request.substr(1));
  if (what == kText) {
    ServeGrammar(std::move(answers), grammar, vocab, GrammarLimits::For(limits.n_tokens));
  }
  ServeTrial(std::move(answers), grammar, vocab, limits, what == kShortTrial ? kShortShare : 1);
}

}  // namespace

Result<std::unique_ptr<GrammarChecker>> GrammarChecker::Start(const Vocab& vocab, Limits limits) {
  limits.n_tokens = std::min(limits.n_tokens, vocab.size());
  TRY(auto starter,
      ChildStarter::Start({.serve =
                               [&vocab, limits](std::string_view request, MessageSocket answers) {
                                 ServeRequest(request, std::move(answers), vocab, limits);
                               },
                           .most_children = limits.most_texts + kTrialsAtOnce,
                           .what = "grammars",
                           .purpose = "try out grammars",
                           .what_fails = "requests with a grammar, a schema or tools"}));
  return std::unique_ptr<GrammarChecker>(
      new GrammarChecker(vocab, std::move(starter), limits.trial));
}

GrammarChecker::GrammarChecker(const Vocab& vocab, std::unique_ptr<ChildStarter> starter,
                               milliseconds trial)
    : vocab_(vocab), trial_(trial), starter_(std::move(starter)) {}

Status GrammarChecker::Check(const Grammar& grammar, const IsOver& is_over) {
  TRY_STATUS(CheckGrammarText(grammar, vocab_));
  starter_->AwaitHelper();  // also before a known verdict, since Open() does not wait
  const std::string request = ToRequest(grammar);
  if (const auto verdict = Recall(request)) return *verdict;
  TRY(auto verdict, TryIn(short_trial_, kShortTrial, request, is_over));
  if (!verdict) {
    TRY(verdict, TryIn(long_trial_, kTrial, request, is_over));
  }
  return verdict ? *verdict : GrammarVerdict({.outcome = Trial::Outcome::kTimedOut, .output = {}});
}

// Tries the grammar, one at a time in each lane. nullopt: the trial ran out of time.
Result<std::optional<Status>> GrammarChecker::TryIn(std::mutex& lane, char what,
                                                    const std::string& request,
                                                    const IsOver& is_over) {
  const std::scoped_lock lock(lane);
  if (const auto verdict = Recall(request)) return verdict;
  TRY(Trial trial, Try(what, request, is_over));
  // The process of a trial may die as a helper may.
  if (trial.outcome == Trial::Outcome::kNotRun) {
    TRY(trial, Try(what, request, is_over));
  }
  // The time that a trial takes is also the machine's.
  if (trial.outcome == Trial::Outcome::kTimedOut) return std::nullopt;
  Status verdict = GrammarVerdict(trial);
  if (trial.outcome != Trial::Outcome::kNotRun) Remember(request, verdict);
  return verdict;
}

std::optional<Status> GrammarChecker::Recall(const std::string& request) {
  const std::scoped_lock lock(known_mutex_);
  const auto found = std::ranges::find(known_, request, &Known::request);
  if (found == known_.end()) return std::nullopt;
  known_.splice(known_.begin(), known_, found);
  return known_.front().verdict;
}

void GrammarChecker::Remember(const std::string& request, const Status& verdict) {
  const std::scoped_lock lock(known_mutex_);
  known_.push_front({request, verdict});
  size_t bytes = 0;
  size_t kept = 0;
  for (const Known& known : known_) {
    bytes += known.request.size();
    if (kept == kMostKnown || bytes > kMostKnownBytes) break;
    ++kept;
  }
  known_.resize(std::max<size_t>(kept, 1));
}

Result<Trial> GrammarChecker::Try(char what, const std::string& request, const IsOver& is_over) {
  const auto ends_now = [&] { return is_over && is_over(); };
  if (ends_now()) return Fail(Errc::kInterrupted, "the grammar's trial was ended");
  TRY(MessageSocket answers, starter_->AwaitAndBegin(what + request));
  const auto end = steady_clock::now() + trial_ + kSlack;
  std::optional<std::string> reply;
  do {  // the first message is that the child begins
    while (!answers.Await(kLookEvery)) {
      if (ends_now()) return Fail(Errc::kInterrupted, "the grammar's trial was ended");
      if (steady_clock::now() > end) return Trial{};
    }
    reply = answers.Read(end);
  } while (reply && reply->empty());
  if (!reply) return Trial{};  // the child's process died
  return Trial{static_cast<Trial::Outcome>(reply->front()), reply->substr(1)};
}

Result<std::unique_ptr<TokenFilter>> GrammarChecker::Open(const Grammar& grammar) {
  const std::string request = ToRequest(grammar);
  TRY(MessageSocket answers, starter_->Begin(kText + request));
  return std::make_unique<GrammarProcess>(
      std::move(answers), [this, request] { return starter_->Begin(kText + request); });
}

}  // namespace moestro
