// SPDX-License-Identifier: MIT
#include "sandbox/child_starter.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/system_limits.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kReapEvery{100};       // while children run
constexpr milliseconds kLookForSpawner{20};   // whether another spawner has come
constexpr milliseconds kLongestStart{4'000};  // of a helper on a busy machine

// Leaves the spawner nothing of its parent's but memory: an open file or pipe would stay open for
// other processes as long as the spawner lives, and signals that a terminal or a service's manager
// sends to all processes are meant for the parent.
void Detach(int socket, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // takes over the children of a dead helper
  for (const int number : {SIGCHLD, SIGPIPE}) signal(number, SIG_DFL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, fd);
  if (socket > STDERR_FILENO + 1)
    close_range(STDERR_FILENO + 1, static_cast<unsigned>(socket) - 1, 0);
  close_range(static_cast<unsigned>(socket) + 1, ~0U, 0);
}

// Reaps children that have ended; waits for one while `most` or more run.
void Reap(uint32_t& running, uint32_t most) {
  while (running > 0) {
    const pid_t ended = waitpid(-1, nullptr, running < most ? WNOHANG : 0);
    if (ended == 0) return;
    if (ended > 0) --running;
    if (ended < 0 && errno != EINTR) running = 0;
  }
}

// The helper. Ends when the owner closes its side.
[[noreturn]] void ServeRequests(MessageSocket socket, const ChildStarter::Work& work) {
  if (work.prepare) work.prepare();
  uint32_t running = 0;
  while (true) {
    while (running > 0 && !socket.Await(kReapEvery)) Reap(running, UINT32_MAX);
    const auto request = socket.Read(std::nullopt);
    if (!request) break;
    MessageSocket answers = socket.Receive();
    if (!answers.is_open()) break;
    Reap(running, work.most_children);
    if (!answers.Write("", std::nullopt)) continue;  // the child begins, or its caller has gone
    const pid_t child = fork();
    if (child > 0) ++running;
    if (child != 0) continue;
    socket.Close();
    work.serve(*request, std::move(answers));
    _exit(EXIT_SUCCESS);
  }
  _exit(EXIT_SUCCESS);
}

void EndHelper(pid_t child) {
  if (child <= 0) return;
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// The spawner: replies to each message with a new helper's number and socket. Ends when the owner
// closes its side, and ends its helper then.
[[noreturn]] void ServeHelpers(MessageSocket owner, const ChildStarter::Work& work) {
  ReturnFreedMemory();  // freed memory would come on top of each child's share
  pid_t helper = -1;
  while (owner.Read(std::nullopt)) {
    EndHelper(std::exchange(helper, -1));
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    auto ends = MessageSocket::MakePair();
    if (!ends) break;
    helper = fork();
    if (helper == 0) {
      owner.Close();
      ends->first.Close();
      ServeRequests(std::move(ends->second), work);
    }
    if (helper < 0) break;
    std::string number;
    AppendNumber(number, static_cast<uint32_t>(helper));
    if (!owner.Write(number, std::nullopt) || !owner.Send(ends->first)) break;
  }
  EndHelper(helper);
  _exit(EXIT_SUCCESS);
}

}  // namespace

ChildStarter::ChildStarter(Work work, int spawner, MessageSocket socket)
    : work_(std::move(work)), spawner_(spawner), to_spawner_(std::move(socket)) {}

Result<std::unique_ptr<ChildStarter>> ChildStarter::Start(Work work) {
  TRY(auto ends, MessageSocket::MakePair());
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    try {
      Detach(ends.second.fd(), parent);
      ServeHelpers(std::move(ends.second), work);
    } catch (const std::exception&) {
      _exit(EXIT_FAILURE);
    }
  }
  if (child < 0) {
    return Fail(Errc::kIo, "cannot start a process to {}: {}", work.purpose, std::strerror(errno));
  }
  ends.second.Close();
  std::unique_ptr<ChildStarter> starter(
      new ChildStarter(std::move(work), child, std::move(ends.first)));
  if (!starter->StartHelper()) {
    return Fail(Errc::kIo, "cannot start a process to {}", starter->work_.purpose);
  }
  return starter;
}

ChildStarter::~ChildStarter() {
  to_helper_.Close();
  to_spawner_.Close();
  while (is_own_ && waitpid(spawner_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

int ChildStarter::spawner_id() const {
  const std::scoped_lock lock(mutex_);
  return spawner_;
}

int ChildStarter::helper_id() const {
  const std::scoped_lock lock(mutex_);
  return helper_;
}

// REQUIRES: mutex_ is held, or no other thread has this object yet.
bool ChildStarter::StartHelper() {
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

Result<MessageSocket> ChildStarter::Begin(std::string_view request) {
  const std::scoped_lock lock(mutex_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    TRY(auto ends, MessageSocket::MakePair());
    const auto end = steady_clock::now() + kLongestStart;
    if (to_helper_.is_open() && to_helper_.Write(request, end) && to_helper_.Send(ends.second)) {
      return std::move(ends.first);
    }
    if (attempt > 0 || !StartHelper()) break;
    LogWarning("the process that begins {} had died; another one has been started", work_.what);
  }
  const bool comes_back = patience_ > milliseconds(0);
  if (!std::exchange(has_said_lost_, true)) {
    LogWarning("the processes that begin {} are gone; {} fail until {}", work_.what,
               work_.what_fails,
               comes_back ? "they have been started again" : "the program is started anew");
  }
  return Fail(Errc::kIo, "the processes that {} are gone; {}", work_.purpose,
              comes_back ? "they are being started again, so ask again" : "start the program anew");
}

void ChildStarter::ExpectAdoption(milliseconds patience, std::function<bool()> is_over) {
  const std::scoped_lock lock(mutex_);
  patience_ = patience;
  is_over_ = std::move(is_over);
}

void ChildStarter::AwaitHelper() {
  std::unique_lock lock(mutex_);
  const auto end = steady_clock::now() + patience_;
  while (!ReplaceHelper() && steady_clock::now() < end && !(is_over_ && is_over_())) {
    lock.unlock();
    std::this_thread::sleep_for(kLookForSpawner);
    lock.lock();
  }
}

Result<MessageSocket> ChildStarter::AwaitAndBegin(std::string_view request) {
  AwaitHelper();
  Result<MessageSocket> begun = Begin(request);
  if (begun) return begun;
  AwaitHelper();  // a killed helper may take a moment to be gone
  return Begin(request);
}

std::string ChildStarter::Missing() const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  // A thread that has the lock uses the helper, or starts a missing one.
  if (!lock.owns_lock() || HasHelper()) return {};
  return Format("the processes that {} are gone and are being started again; {} wait until then",
                work_.purpose, work_.what_fails);
}

// Starts a helper if none runs. REQUIRES: mutex_ is held.
bool ChildStarter::ReplaceHelper() {
  if (HasHelper()) return true;
  if (!StartHelper()) return false;
  LogWarning("the process that begins {} had died; another one has been started", work_.what);
  return true;
}

bool ChildStarter::Mend() {
  const std::scoped_lock lock(mutex_);
  return to_spawner_.is_open() && !to_spawner_.is_abandoned() && ReplaceHelper();
}

void ChildStarter::Adopt(MessageSocket to_spawner, int spawner) {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(is_own_, false)) waitpid(spawner_, nullptr, WNOHANG);
  to_spawner_ = std::move(to_spawner);
  spawner_ = spawner;
  if (!StartHelper()) return;
  has_said_lost_ = false;
  LogWarning("the processes that begin {} had died; others have been started", work_.what);
}

MessageSocket ChildStarter::GiveSpawner() {
  const std::scoped_lock lock(mutex_);
  to_helper_.Close();
  is_own_ = false;
  return std::exchange(to_spawner_, MessageSocket());
}

}  // namespace moestro
