// SPDX-License-Identifier: MIT
#include "house/model_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/terminal.h"

namespace moestro {
namespace {

constexpr size_t kMostOutput = size_t{1} << 20;
constexpr size_t kLongestLine = 16 * 1024;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Fail(Errc::kIo, "cannot make a pipe: {}", std::strerror(errno));
  }
  return Pipe{.read = UniqueFd(ends[0]), .write = UniqueFd(ends[1])};
}

// This process's variables without those that set flags or name a service manager.
std::vector<char*> EnvironmentForWorkers() {
  constexpr std::array<std::string_view, 2> kOwn = {"MOESTRO_", "NOTIFY_SOCKET="};
  std::vector<char*> kept;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view text = *at;
    const bool is_own =
        std::ranges::any_of(kOwn, [&](std::string_view begin) { return text.starts_with(begin); });
    if (!is_own) kept.push_back(*at);
  }
  kept.push_back(nullptr);
  return kept;
}

// In the child of a process with threads: nothing here takes memory or a lock.
[[noreturn]] void BecomeWorker(pid_t parent, const std::array<int, 3>& streams, const char* program,
                               char* const* arguments, char* const* environment) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) _exit(1);
  ::signal(SIGHUP, SIG_DFL);  // nohup's for this process alone: the parent ends its children by it
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::dup2(streams[static_cast<size_t>(stream)], stream);
  }
  ::execve(program, arguments, environment);
  _exit(127);
}

// Reads available bytes. False: the end, or a fault.
bool ReadSome(int fd, std::string& text) {
  std::array<char, 4096> bytes;
  const ssize_t n = ::read(fd, bytes.data(), bytes.size());
  if (n > 0) text.append(bytes.data(), static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

Result<std::unique_ptr<ModelProcess>> ModelProcess::Start(std::span<const std::string> arguments,
                                                          const std::string& label,
                                                          const std::string& program) {
  std::vector<std::string> texts = {"moestro", kWorkerFlags};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  const std::vector<char*> environment = EnvironmentForWorkers();
  TRY(Pipe out, MakePipe());
  TRY(Pipe err, MakePipe());
  const UniqueFd in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = ::getpid();
  const pid_t id = ::fork();
  if (id == 0) {
    BecomeWorker(parent, {in.get(), out.write.get(), err.write.get()}, program.c_str(),
                 pointers.data(), environment.data());
  }
  if (id < 0) return Fail(Errc::kIo, "cannot start a process: {}", std::strerror(errno));
  std::unique_ptr<ModelProcess> process(
      new ModelProcess(id, label, std::move(out.read), std::move(err.read)));
  TRY_STATUS(process->BeginToRead());
  return process;
}

ModelProcess::ModelProcess(pid_t id, std::string label, UniqueFd out, UniqueFd err)
    : id_(id), label_(std::move(label)), out_(std::move(out)), err_(std::move(err)) {}

// kIo: there is no thread to be had.
Status ModelProcess::BeginToRead() {
  return Caught(
      [this] {
        reader_ = std::thread([this] { Caught([this] { ReadAll(); }, [](std::string_view) {}); });
        return Status();
      },
      [](std::string_view why) -> Status {
        return Fail(Errc::kIo, "cannot start a thread: {}", why);
      });
}

ModelProcess::~ModelProcess() {
  if (!has_ended_) {
    ::kill(id_, SIGKILL);
    while (::waitpid(id_, &status_, 0) < 0 && errno == EINTR) {
    }
    is_over_ = true;
  }
  if (reader_.joinable()) reader_.join();
}

// Reads until both pipes end, or until the process has ended and the pipes are empty: its children
// may keep them open.
void ModelProcess::ReadAll() {
  std::string lines;
  std::array<pollfd, 2> ends = {pollfd{.fd = out_.get(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = err_.get(), .events = POLLIN, .revents = 0}};
  constexpr int kLookEvery = 50;  // milliseconds
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const bool was_over = is_over_;
    if (::poll(ends.data(), ends.size(), was_over ? 0 : kLookEvery) <= 0) {
      if (was_over) break;
      continue;
    }
    std::string output;
    if (ends[0].revents != 0 && !ReadSome(ends[0].fd, output)) ends[0].fd = -1;
    if (!output.empty()) {
      const std::lock_guard lock(mutex_);
      output_ += output.substr(0, kMostOutput - std::min(output_.size(), kMostOutput));
    }
    if (ends[1].revents != 0 && !ReadSome(ends[1].fd, lines)) ends[1].fd = -1;
    TakeLines(lines, false);
  }
  TakeLines(lines, true);
}

void ModelProcess::TakeLines(std::string& text, bool is_over) {
  if (is_over && !text.empty()) text += '\n';
  if (text.size() > kLongestLine && !text.contains('\n')) text += '\n';
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
    const std::string line = text.substr(0, end);
    text.erase(0, end + 1);
    // The reader of stderr may stand still, and this process must not: the line is left out then.
    if (line.starts_with('{')) {
      PrintOnStderrAtOnce(line + "\n");
      continue;
    }
    PrintOnStderrAtOnce(Format("{}: {}\n", label_, line));
    if (line.empty()) continue;
    const std::lock_guard lock(mutex_);
    last_line_ = line;
  }
}

bool ModelProcess::HasEnded() {
  if (has_ended_) return true;
  const pid_t got = ::waitpid(id_, &status_, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return false;
  has_ended_ = true;
  is_over_ = true;
  reader_.join();
  return true;
}

std::string ModelProcess::EndText() const {
  if (was_killed() && !was_told_to_end_) {
    return "signal 9 (Killed) from outside, which the kernel sends where memory runs out";
  }
  if (WIFSIGNALED(status_)) {
    return Format("signal {} ({})", WTERMSIG(status_), ::strsignal(WTERMSIG(status_)));
  }
  return Format("exit code {}", WEXITSTATUS(status_));
}

std::string ModelProcess::LastLine() const {
  const std::lock_guard lock(mutex_);
  constexpr std::string_view kOurs = "moestro: ";
  const std::string_view line = last_line_;
  return std::string(line.starts_with(kOurs) ? line.substr(kOurs.size()) : line);
}

std::string ModelProcess::Output() const {
  const std::lock_guard lock(mutex_);
  return output_;
}

void ModelProcess::Tell(int signal) {
  if (has_ended_) return;
  was_told_to_end_ = was_told_to_end_ || signal == SIGKILL;
  ::kill(id_, signal);
  ::kill(id_, SIGCONT);
}

bool ModelProcess::IsStopped() const {
  // "123 (name) T ...": the name may hold anything, so its last parenthesis counts.
  const std::optional<std::string> text = ReadSmallFile(Format("/proc/{}/stat", id_), 4096);
  if (!text) return false;
  const size_t name_end = text->rfind(") ");
  return name_end != std::string::npos && text->compare(name_end + 2, 1, "T") == 0;
}

}  // namespace moestro
