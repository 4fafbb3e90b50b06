// SPDX-License-Identifier: MIT
#include "text/grammar_checker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

namespace moestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSlack{10'000};  // beyond a trial's limit, for a machine that is busy
constexpr uint32_t kLongestMessage = 2U << 20;
constexpr size_t kMostKnown = 64;
constexpr size_t kMostKnownBytes = size_t{4} << 20;

// A message is its length, then so many bytes. A request's are strings, each after its length.
void AppendNumber(std::string& bytes, uint32_t number) {
  std::array<char, sizeof(number)> raw{};
  std::memcpy(raw.data(), &number, sizeof(number));
  bytes.append(raw.data(), raw.size());
}

uint32_t TakeNumber(std::string_view& bytes) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

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

// Waits until the other side is ready; false: it is not, in time.
bool Await(int fd, short event, std::optional<steady_clock::time_point> end) {
  while (true) {
    int left = -1;
    if (end) {
      const auto time = std::chrono::ceil<milliseconds>(*end - steady_clock::now());
      left = static_cast<int>(std::max<int64_t>(time.count(), 0));
    }
    pollfd waiting = {fd, event, 0};
    const int ready = poll(&waiting, 1, left);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool ReadBytes(int fd, char* to, size_t n, std::optional<steady_clock::time_point> end) {
  while (n > 0) {
    if (!Await(fd, POLLIN, end)) return false;
    const ssize_t got = recv(fd, to, n, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    to += got;
    n -= static_cast<size_t>(got);
  }
  return true;
}

std::optional<std::string> ReadMessage(int fd, std::optional<steady_clock::time_point> end) {
  std::array<char, sizeof(uint32_t)> raw{};
  if (!ReadBytes(fd, raw.data(), raw.size(), end)) return std::nullopt;
  std::string_view view(raw.data(), raw.size());
  const uint32_t length = TakeNumber(view);
  if (length > kLongestMessage) return std::nullopt;
  std::string message(length, '\0');
  if (!ReadBytes(fd, message.data(), length, end)) return std::nullopt;
  return message;
}

bool WriteMessage(int fd, const std::string& message, std::optional<steady_clock::time_point> end) {
  std::string bytes;
  AppendNumber(bytes, static_cast<uint32_t>(message.size()));
  bytes += message;
  for (std::string_view left = bytes; !left.empty();) {
    if (!Await(fd, POLLOUT, end)) return false;
    const ssize_t sent = send(fd, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) return false;
    left.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
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

// Ends when the parent closes its side.
[[noreturn]] void Serve(int socket, const Vocab& vocab, uint32_t n_tokens, milliseconds limit) {
  while (const auto request = ReadMessage(socket, std::nullopt)) {
    const Grammar grammar = FromRequest(*request);
    const Trial trial = TryInChild([&] { return TryGrammar(grammar, vocab, n_tokens); }, limit);
    if (!WriteMessage(socket, static_cast<char>(trial.outcome) + trial.output, std::nullopt)) break;
  }
  _exit(EXIT_SUCCESS);
}

}  // namespace

GrammarChecker::GrammarChecker(const Vocab& vocab, int child, int socket, milliseconds limit)
    : vocab_(vocab), child_(child), limit_(limit), socket_(socket) {}

Result<std::unique_ptr<GrammarChecker>> GrammarChecker::Start(const Vocab& vocab, uint32_t n_tokens,
                                                              milliseconds limit) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Fail(Errc::kIo, "cannot make a socket to try out grammars: {}", std::strerror(errno));
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    try {
      Detach(ends[1], parent);
      Serve(ends[1], vocab, std::min(n_tokens, vocab.size()), limit);
    } catch (const std::exception&) {
      _exit(EXIT_FAILURE);
    }
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return Fail(Errc::kIo, "cannot start a process to try out grammars: {}", std::strerror(errno));
  }
  return std::unique_ptr<GrammarChecker>(new GrammarChecker(vocab, child, ends[0], limit));
}

GrammarChecker::~GrammarChecker() { EndChild(); }

void GrammarChecker::EndChild() {
  if (socket_ < 0) return;
  close(socket_);
  socket_ = -1;
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

Result<Trial> GrammarChecker::Ask(const std::string& request) {
  if (socket_ >= 0) {
    const auto end = steady_clock::now() + limit_ + kSlack;
    if (WriteMessage(socket_, request, end)) {
      const auto reply = ReadMessage(socket_, end);
      if (reply && !reply->empty()) {
        return Trial{static_cast<Trial::Outcome>(reply->front()), reply->substr(1)};
      }
    }
    EndChild();
  }
  return Fail(
      Errc::kIo,
      "the process that tries out grammars is gone; restart the server to use new grammars");
}

}  // namespace moestro
