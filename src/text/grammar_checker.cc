// SPDX-License-Identifier: MIT
#include "text/grammar_checker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar_process.h"

namespace moestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSlack{10'000};  // beyond a trial's limit, for a machine that is busy
constexpr size_t kMostKnown = 64;
constexpr size_t kMostKnownBytes = size_t{4} << 20;

// The first byte of a message to the child, then strings, each after its length.
constexpr char kTry = 't';
constexpr char kOpen = 'o';  // a socket follows

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

// Leaves the child nothing of its parent's but memory: an open file or pipe would stay open for
// others as long as it lives, and a terminal's interrupt is meant for the parent.
void Detach(int socket, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);
  for (const int number : {SIGTERM, SIGHUP, SIGCHLD, SIGPIPE}) signal(number, SIG_DFL);
  signal(SIGINT, SIG_IGN);
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, fd);
  if (socket > STDERR_FILENO + 1)
    close_range(STDERR_FILENO + 1, static_cast<unsigned>(socket) - 1, 0);
  close_range(static_cast<unsigned>(socket) + 1, ~0U, 0);
}

// A text's grammar gets a process of its own, which ends when the text closes its side.
void OpenGrammar(MessageSocket& socket, const Grammar& grammar, const Vocab& vocab,
                 GrammarLimits limits) {
  MessageSocket text = socket.Receive();
  if (!text.is_open() || fork() != 0) return;
  socket.Close();
  ServeGrammar(std::move(text), grammar, vocab, limits);
}

// Ends when the parent closes its side.
[[noreturn]] void Serve(MessageSocket socket, const Vocab& vocab, uint32_t n_tokens,
                        milliseconds limit) {
  const auto limits = GrammarLimits::For(n_tokens);
  while (const auto request = socket.Read(std::nullopt)) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (request->empty()) break;
    const Grammar grammar = FromRequest(std::string_view(*request).substr(1));
    if (request->front() == kOpen) {
      OpenGrammar(socket, grammar, vocab, limits);
      continue;
    }
    const Trial trial =
        TryInChild([&] { return TryGrammar(grammar, vocab, n_tokens, limits); }, limit);
    if (!socket.Write(static_cast<char>(trial.outcome) + trial.output, std::nullopt)) break;
  }
  _exit(EXIT_SUCCESS);
}

}  // namespace

GrammarChecker::GrammarChecker(const Vocab& vocab, int child, MessageSocket socket,
                               milliseconds limit)
    : vocab_(vocab), child_(child), limit_(limit), socket_(std::move(socket)) {}

Result<std::unique_ptr<GrammarChecker>> GrammarChecker::Start(const Vocab& vocab, uint32_t n_tokens,
                                                              milliseconds limit) {
  TRY(auto ends, MessageSocket::MakePair());
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    try {
      Detach(ends.second.fd(), parent);
      Serve(std::move(ends.second), vocab, std::min(n_tokens, vocab.size()), limit);
    } catch (const std::exception&) {
      _exit(EXIT_FAILURE);
    }
  }
  if (child < 0) {
    return Fail(Errc::kIo, "cannot start a process to try out grammars: {}", std::strerror(errno));
  }
  return std::unique_ptr<GrammarChecker>(
      new GrammarChecker(vocab, child, std::move(ends.first), limit));
}

GrammarChecker::~GrammarChecker() { EndChild(); }

void GrammarChecker::EndChild() {
  if (!socket_.is_open()) return;
  socket_.Close();
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Status GrammarChecker::Check(const Grammar& grammar) {
  TRY_STATUS(CheckGrammarText(grammar, vocab_));
  std::string request = ToRequest(grammar);
  const std::scoped_lock lock(mutex_);
  if (const Status* verdict = Recall(request)) return *verdict;
  TRY(const Trial trial, Ask(request));
  Status verdict = GrammarVerdict(trial);
  // The time that a trial takes is also the machine's.
  const bool is_lasting =
      trial.outcome != Trial::Outcome::kTimedOut && trial.outcome != Trial::Outcome::kNotRun;
  if (is_lasting) Remember(std::move(request), verdict);
  return verdict;
}

const Status* GrammarChecker::Recall(const std::string& request) {
  const auto found = std::ranges::find(known_, request, &Known::request);
  if (found == known_.end()) return nullptr;
  known_.splice(known_.begin(), known_, found);
  return &known_.front().verdict;
}

void GrammarChecker::Remember(std::string request, const Status& verdict) {
  known_.push_front({std::move(request), verdict});
  size_t bytes = 0;
  size_t kept = 0;
  for (const Known& known : known_) {
    bytes += known.request.size();
    if (kept == kMostKnown || bytes > kMostKnownBytes) break;
    ++kept;
  }
  known_.resize(std::max<size_t>(kept, 1));
}

std::unexpected<Error> GrammarChecker::Gone() {
  EndChild();
  return Fail(
      Errc::kIo,
      "the process that tries out grammars is gone; restart the server to use new grammars");
}

Result<Trial> GrammarChecker::Ask(const std::string& request) {
  if (!socket_.is_open()) return Gone();
  const auto end = steady_clock::now() + limit_ + kSlack;
  if (!socket_.Write(kTry + request, end)) return Gone();
  const auto reply = socket_.Read(end);
  if (!reply || reply->empty()) return Gone();
  return Trial{static_cast<Trial::Outcome>(reply->front()), reply->substr(1)};
}

Status GrammarChecker::SendOpening(const std::string& request, const MessageSocket& end) {
  const std::scoped_lock lock(mutex_);
  const auto deadline = steady_clock::now() + limit_ + kSlack;
  if (!socket_.is_open() || !socket_.Write(kOpen + request, deadline) || !socket_.Send(end)) {
    return Gone();
  }
  return {};
}

Result<std::unique_ptr<TokenFilter>> GrammarChecker::Open(const Grammar& grammar) {
  TRY_STATUS(Check(grammar));
  TRY(auto ends, MessageSocket::MakePair());
  TRY_STATUS(SendOpening(ToRequest(grammar), ends.second));
  ends.second.Close();
  auto opened = std::make_unique<GrammarProcess>(std::move(ends.first));
  TRY_STATUS(opened->AwaitReady(limit_ + kSlack));
  return opened;
}

}  // namespace moestro
