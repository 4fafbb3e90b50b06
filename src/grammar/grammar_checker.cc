// SPDX-License-Identifier: MIT
#include "grammar/grammar_checker.h"

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

#include "base/log.h"
#include "base/system_limits.h"
#include "grammar/grammar_process.h"

namespace moestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSlack{10'000};        // beyond a trial's limit, for a machine that is busy
constexpr milliseconds kReapEvery{100};       // while processes of texts run
constexpr milliseconds kLongestStart{4'000};  // of a process, on a machine that is busy
constexpr uint32_t kTrialsAtOnce = 2;
constexpr int kShortShare = 8;  // of a trial's times
constexpr size_t kMostKnown = 64;
constexpr size_t kMostKnownBytes = size_t{4} << 20;

// The first byte of a message to the child: what to begin. Then strings, each after its length, and
// a socket for the answers.
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

// Leaves the spawner nothing of its parent's but memory: an open file or pipe would stay open for
// others as long as it lives, and a terminal's interrupt is meant for the parent.
void Detach(int socket, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // of what a helper leaves behind when it dies
  for (const int number : {SIGTERM, SIGHUP, SIGCHLD, SIGPIPE}) signal(number, SIG_DFL);
  signal(SIGINT, SIG_IGN);
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, fd);
  if (socket > STDERR_FILENO + 1)
    close_range(STDERR_FILENO + 1, static_cast<unsigned>(socket) - 1, 0);
  close_range(static_cast<unsigned>(socket) + 1, ~0U, 0);
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

// Waits for children that have ended, and for one that has not while there are so many.
void Reap(uint32_t& running, uint32_t most) {
  while (running > 0) {
    const pid_t ended = waitpid(-1, nullptr, running < most ? WNOHANG : 0);
    if (ended == 0) return;
    if (ended > 0) --running;
    if (ended < 0 && errno != EINTR) running = 0;
  }
}

// The helper. Ends when the owner closes its side.
[[noreturn]] void Serve(MessageSocket socket, const Vocab& vocab, GrammarChecker::Limits limits) {
  uint32_t running = 0;
  while (true) {
    while (running > 0 && !socket.Await(kReapEvery)) Reap(running, UINT32_MAX);
    const auto request = socket.Read(std::nullopt);
    if (!request) break;
    MessageSocket answers = socket.Receive();
    if (request->empty() || !answers.is_open()) break;
    Reap(running, limits.most_texts + kTrialsAtOnce);
    if (!answers.Write("", std::nullopt)) continue;  // it begins; or its caller has gone
    const pid_t child = fork();
    if (child > 0) ++running;
    if (child != 0) continue;
    socket.Close();
    const Grammar grammar = FromRequest(std::string_view(*request).substr(1));
    if (request->front() == kText) {
      ServeGrammar(std::move(answers), grammar, vocab, GrammarLimits::For(limits.n_tokens));
    }
    ServeTrial(std::move(answers), grammar, vocab, limits,
               request->front() == kShortTrial ? kShortShare : 1);
  }
  _exit(EXIT_SUCCESS);
}

void End(pid_t child) {
  if (child <= 0) return;
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// The spawner: at each message a new helper, whose number and socket are the answer. Ends when the
// owner closes its side, and its helper with it.
[[noreturn]] void ServeHelpers(MessageSocket owner, const Vocab& vocab,
                               const GrammarChecker::Limits& limits) {
  ReturnFreedMemory();  // or each child could take it beside its share
  pid_t helper = -1;
  while (owner.Read(std::nullopt)) {
    End(std::exchange(helper, -1));
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    auto ends = MessageSocket::MakePair();
    if (!ends) break;
    helper = fork();
    if (helper == 0) {
      owner.Close();
      ends->first.Close();
      Serve(std::move(ends->second), vocab, limits);
    }
    if (helper < 0) break;
    std::string number;
    AppendNumber(number, static_cast<uint32_t>(helper));
    if (!owner.Write(number, std::nullopt) || !owner.Send(ends->first)) break;
  }
  End(helper);
  _exit(EXIT_SUCCESS);
}

}  // namespace

GrammarChecker::GrammarChecker(const Vocab& vocab, int spawner, MessageSocket socket,
                               milliseconds trial)
    : vocab_(vocab), spawner_(spawner), trial_(trial), to_spawner_(std::move(socket)) {}

Result<std::unique_ptr<GrammarChecker>> GrammarChecker::Start(const Vocab& vocab, Limits limits) {
  limits.n_tokens = std::min(limits.n_tokens, vocab.size());
  TRY(auto ends, MessageSocket::MakePair());
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    try {
      Detach(ends.second.fd(), parent);
      ServeHelpers(std::move(ends.second), vocab, limits);
    } catch (const std::exception&) {
      _exit(EXIT_FAILURE);
    }
  }
  if (child < 0) {
    return Fail(Errc::kIo, "cannot start a process to try out grammars: {}", std::strerror(errno));
  }
  ends.second.Close();
  std::unique_ptr<GrammarChecker> checker(
      new GrammarChecker(vocab, child, std::move(ends.first), limits.trial));
  if (!checker->StartHelper()) {
    return Fail(Errc::kIo, "cannot start a process to try out grammars");
  }
  return checker;
}

GrammarChecker::~GrammarChecker() {
  to_helper_.Close();
  to_spawner_.Close();
  while (waitpid(spawner_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

int GrammarChecker::helper_id() const {
  const std::scoped_lock lock(socket_mutex_);
  return helper_;
}

// REQUIRES: socket_mutex_ is held, or no other thread has this as yet.
bool GrammarChecker::StartHelper() {
  to_helper_.Close();
  helper_ = -1;
  const auto end = steady_clock::now() + kLongestStart;
  if (!to_spawner_.is_open() || !to_spawner_.Write("h", end)) return false;
  const auto number = to_spawner_.Read(end);
  if (!number || number->size() != sizeof(uint32_t)) return false;
  std::string_view view = *number;
  helper_ = static_cast<int>(TakeNumber(view));
  to_helper_ = to_spawner_.Receive();
  return to_helper_.is_open();
}

Status GrammarChecker::Check(const Grammar& grammar, const IsOver& is_over) {
  TRY_STATUS(CheckGrammarText(grammar, vocab_));
  const std::string request = ToRequest(grammar);
  if (const auto verdict = Recall(request)) return *verdict;
  TRY(auto verdict, TryIn(short_trial_, kShortTrial, request, is_over));
  if (!verdict) {
    TRY(verdict, TryIn(long_trial_, kTrial, request, is_over));
  }
  return verdict ? *verdict : GrammarVerdict({.outcome = Trial::Outcome::kTimedOut, .output = {}});
}

// nullopt: there was not enough time.
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
  TRY(MessageSocket answers, Begin(what, request));
  const auto end = steady_clock::now() + trial_ + kSlack;
  std::optional<std::string> reply;
  do {  // the first says that it begins
    while (!answers.Await(kReapEvery)) {
      if (ends_now()) return Fail(Errc::kInterrupted, "the grammar's trial was ended");
      if (steady_clock::now() > end) return Trial{};
    }
    reply = answers.Read(end);
  } while (reply && reply->empty());
  if (!reply) return Trial{};  // there is no process for it
  return Trial{static_cast<Trial::Outcome>(reply->front()), reply->substr(1)};
}

// Where the answers of what begins will be.
Result<MessageSocket> GrammarChecker::Begin(char what, const std::string& request) {
  const std::scoped_lock lock(socket_mutex_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    TRY(auto ends, MessageSocket::MakePair());
    const auto end = steady_clock::now() + kLongestStart;
    if (to_helper_.is_open() && to_helper_.Write(what + request, end) &&
        to_helper_.Send(ends.second)) {
      return std::move(ends.first);
    }
    if (attempt > 0 || !StartHelper()) break;
    LogWarning("the process that begins grammars had died; another one has been started");
  }
  if (!std::exchange(has_said_lost_, true)) {
    LogWarning(
        "the processes that begin grammars are gone; requests with a grammar, a schema or "
        "tools fail until the server is started anew");
  }
  return Fail(Errc::kIo, "the processes that try out grammars are gone; restart the server");
}

Result<std::unique_ptr<TokenFilter>> GrammarChecker::Open(const Grammar& grammar) {
  const std::string request = ToRequest(grammar);
  TRY(MessageSocket answers, Begin(kText, request));
  return std::make_unique<GrammarProcess>(std::move(answers),
                                          [this, request] { return Begin(kText, request); });
}

}  // namespace moestro
