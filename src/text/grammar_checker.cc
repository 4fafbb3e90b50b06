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

#include "base/system_limits.h"
#include "text/grammar_process.h"

namespace moestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSlack{10'000};   // beyond a trial's limit, for a machine that is busy
constexpr milliseconds kReapEvery{100};  // while processes of texts run
constexpr size_t kMostKnown = 64;
constexpr size_t kMostKnownBytes = size_t{4} << 20;

// The first byte of a message to the child: what to begin. Then strings, each after its length, and
// a socket for the answers.
constexpr char kTrial = 't';
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

[[noreturn]] void ServeTrial(MessageSocket socket, const Grammar& grammar, const Vocab& vocab,
                             const GrammarChecker::Limits& limits) {
  const auto work = [&] {
    return TryGrammar(grammar, vocab, limits.n_tokens, GrammarLimits::For(limits.n_tokens));
  };
  const Trial trial = TryInChild(work, {.time = limits.trial, .memory = kGrammarMemory});
  socket.Write(static_cast<char>(trial.outcome) + trial.output, std::nullopt);
  _exit(EXIT_SUCCESS);
}

// Waits for children that have ended, and for one that has not while there are so many.
void Reap(uint32_t& running, uint32_t most) {
  while (running > 0) {
    const pid_t ended = waitpid(-1, nullptr, running < most ? WNOHANG : 0);
    if (ended == 0) return;
    if (ended > 0) --running;
    if (ended < 0 && errno != EINTR) running = 0;
  }
}

// Ends when the parent closes its side.
[[noreturn]] void Serve(MessageSocket socket, const Vocab& vocab, GrammarChecker::Limits limits) {
  ReturnFreedMemory();  // or each child could take it beside its share
  uint32_t running = 0;
  while (true) {
    while (running > 0 && !socket.Await(kReapEvery)) Reap(running, UINT32_MAX);
    const auto request = socket.Read(std::nullopt);
    if (!request) break;
    MessageSocket answers = socket.Receive();
    if (request->empty() || !answers.is_open()) break;
    Reap(running, limits.most_texts + 1);
    const pid_t child = fork();
    if (child > 0) ++running;
    if (child != 0) continue;
    socket.Close();
    const Grammar grammar = FromRequest(std::string_view(*request).substr(1));
    if (request->front() == kTrial) ServeTrial(std::move(answers), grammar, vocab, limits);
    ServeGrammar(std::move(answers), grammar, vocab, GrammarLimits::For(limits.n_tokens));
  }
  _exit(EXIT_SUCCESS);
}

}  // namespace

GrammarChecker::GrammarChecker(const Vocab& vocab, int child, MessageSocket socket,
                               milliseconds trial)
    : vocab_(vocab), child_(child), trial_(trial), socket_(std::move(socket)) {}

Result<std::unique_ptr<GrammarChecker>> GrammarChecker::Start(const Vocab& vocab, Limits limits) {
  limits.n_tokens = std::min(limits.n_tokens, vocab.size());
  TRY(auto ends, MessageSocket::MakePair());
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    try {
      Detach(ends.second.fd(), parent);
      Serve(std::move(ends.second), vocab, limits);
    } catch (const std::exception&) {
      _exit(EXIT_FAILURE);
    }
  }
  if (child < 0) {
    return Fail(Errc::kIo, "cannot start a process to try out grammars: {}", std::strerror(errno));
  }
  return std::unique_ptr<GrammarChecker>(
      new GrammarChecker(vocab, child, std::move(ends.first), limits.trial));
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
  const std::scoped_lock lock(trial_mutex_);
  if (const Status* verdict = Recall(request)) return *verdict;
  TRY(const Trial trial, Try(request));
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

Result<Trial> GrammarChecker::Try(const std::string& request) {
  TRY(MessageSocket answers, Begin(kTrial, request));
  const auto reply = answers.Read(steady_clock::now() + trial_ + kSlack);
  if (!reply || reply->empty()) return Trial{};  // there is no process for it
  return Trial{static_cast<Trial::Outcome>(reply->front()), reply->substr(1)};
}

// Where the answers of what begins will be.
Result<MessageSocket> GrammarChecker::Begin(char what, const std::string& request) {
  TRY(auto ends, MessageSocket::MakePair());
  const std::scoped_lock lock(socket_mutex_);
  const auto end = steady_clock::now() + GrammarLimits{}.opening + kLongestStall;
  if (!socket_.is_open() || !socket_.Write(what + request, end) || !socket_.Send(ends.second)) {
    EndChild();
    return Fail(
        Errc::kIo,
        "the process that tries out grammars is gone; restart the server to use new grammars");
  }
  return std::move(ends.first);
}

Result<std::unique_ptr<TokenFilter>> GrammarChecker::Open(const Grammar& grammar) {
  TRY(MessageSocket answers, Begin(kText, ToRequest(grammar)));
  return std::make_unique<GrammarProcess>(std::move(answers));
}

}  // namespace moestro
