// SPDX-License-Identifier: MIT
#include "grammar/grammar_process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "sandbox/trial.h"

namespace moestro {
namespace {

using std::chrono::steady_clock;

// A question is a verb (t, a, r) and a number; an answer begins with a mark (+, -).
constexpr char kTake = 't';     // token
constexpr char kAllowed = 'a';  // number of tokens
constexpr char kRestart = 'r';
constexpr char kFine = '+';
constexpr char kError = '-';  // then the error's text

std::string ToBits(const std::vector<bool>& tokens) {
  std::string bits((tokens.size() + 7) / 8, '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i]) bits[i / 8] = static_cast<char>(bits[i / 8] | (1 << (i % 8)));
  }
  return bits;
}

std::vector<bool> FromBits(std::string_view bits, size_t n) {
  std::vector<bool> tokens(n);
  for (size_t i = 0; i < std::min(n, bits.size() * 8); ++i) {
    tokens[i] = ((static_cast<unsigned char>(bits[i / 8]) >> (i % 8)) & 1U) != 0;
  }
  return tokens;
}

Result<std::string> Answer(TokenFilter& grammar, std::string_view question) {
  const char verb = question.front();
  question.remove_prefix(1);
  const uint32_t number = TakeNumber(question);
  if (verb == kAllowed) {
    TRY(const std::vector<bool> tokens, grammar.Allowed(number));
    return ToBits(tokens);
  }
  if (verb == kTake) {
    TRY(const bool is_taken, grammar.Take(static_cast<Token>(number)));
    return std::string(1, is_taken ? '1' : '0');
  }
  grammar.Restart();
  return std::string();
}

void AnswerAll(MessageSocket& socket, const Grammar& grammar, const Vocab& vocab,
               GrammarLimits limits) {
  ProcessorLimit opening(limits.opening);
  opening.Resume();
  const std::unique_ptr<GrammarState> state = GrammarState::Make(grammar, vocab);
  opening.Pause();
  if (state == nullptr || !socket.Write(std::string(1, kFine), std::nullopt)) return;
  ProcessorLimit token(limits.token);
  while (const auto question = socket.Read(std::nullopt)) {
    if (question->size() != 1 + sizeof(uint32_t)) return;
    token.Resume();
    const Result<std::string> answer = Answer(*state, *question);
    token.Pause();
    const std::string message = answer ? kFine + *answer : kError + answer.error().message;
    if (!socket.Write(message, std::nullopt)) return;
    // The limit is for a text's token: tokens that the grammar refuses before count with it.
    if (question->front() == kTake && answer && *answer == "1") token.Renew();
  }
}

}  // namespace

void ServeGrammar(MessageSocket socket, const Grammar& grammar, const Vocab& vocab,
                  GrammarLimits limits) {
  try {
    LimitChild(kGrammarMemory);
    AnswerAll(socket, grammar, vocab, limits);
  } catch (const std::exception&) {
    _exit(EXIT_FAILURE);
  }
  _exit(EXIT_SUCCESS);
}

// Waits in slices, so that a moment in which the whole machine stands still costs one slice alone.
bool GrammarProcess::Await(std::chrono::milliseconds time) const {
  constexpr int kSlices = 10;
  for (int i = 0; i < kSlices; ++i) {
    if (socket_.Await(time / kSlices)) return true;
  }
  return false;
}

bool GrammarProcess::HasAnswer() {
  return socket_.is_open() && Await(GrammarLimits{}.opening + kLongestStall) &&
         socket_.Read(steady_clock::now() + kLongestStall).has_value();
}

Status GrammarProcess::AwaitReady() {
  if (is_ready_) return {};
  bool has_begun = HasAnswer();
  if (const Opener again = std::exchange(again_, {}); !has_begun && again) {
    if (auto other = again()) {
      socket_ = *std::move(other);
      has_begun = HasAnswer();
    }
  }
  is_ready_ = has_begun && HasAnswer();
  if (is_ready_) return {};
  socket_.Close();
  return Fail(Errc::kInvalidRequest,
              "the grammar cannot be used: there is not enough time or memory to begin with it");
}

Result<std::string> GrammarProcess::Ask(char verb, uint32_t number) {
  TRY_STATUS(AwaitReady());
  std::string question(1, verb);
  AppendNumber(question, number);
  const auto end = steady_clock::now() + kLongestStall;
  if (socket_.is_open() && socket_.Write(question, end) && Await(kLongestStall)) {
    const std::optional<std::string> answer = socket_.Read(steady_clock::now() + kLongestStall);
    if (answer && answer->starts_with(kFine)) return answer->substr(1);
    if (answer && answer->starts_with(kError)) {
      return Fail(Errc::kInvalidRequest, "{}", answer->substr(1));
    }
  }
  socket_.Close();
  return Fail(Errc::kInvalidRequest,
              "the grammar cannot go on: a token needs too much processor time, or the text more "
              "than {} MiB; make the grammar less ambiguous",
              kGrammarMemory >> 20U);
}

Result<bool> GrammarProcess::Take(Token token) {
  TRY(const std::string answer, Ask(kTake, static_cast<uint32_t>(token)));
  return answer == "1";
}

Result<std::vector<bool>> GrammarProcess::Allowed(uint32_t n_tokens) {
  TRY(const std::string bits, Ask(kAllowed, n_tokens));
  return FromBits(bits, n_tokens);
}

// Ignores the answer: after the end of the process the next question gives the error.
void GrammarProcess::Restart() { [[maybe_unused]] const auto answer = Ask(kRestart, 0); }

}  // namespace moestro
