// SPDX-License-Identifier: MIT
#include "tests/cli/program_testing.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>  // NOLINT(misc-include-cleaner): rusage, which wait.h only names
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/result.h"

namespace moestro::testing {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe MakePipe() {
  std::array<int, 2> ends{};
  CHECK(pipe2(ends.data(), O_CLOEXEC) == 0);
  return {ends[0], ends[1]};
}

// Appends what is there; false at the end.
bool ReadSome(int fd, std::string& text) {
  std::array<char, 65536> buffer{};
  const ssize_t n = read(fd, buffer.data(), buffer.size());
  if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

Program::Program(const std::filesystem::path& folder, const Start& start) {
  const Pipe in = MakePipe();
  const Pipe out = MakePipe();
  const Pipe err = MakePipe();
  // Short texts only: they fit into the pipe before anybody reads.
  CHECK(write(in.write, start.input.data(), start.input.size()) ==
        static_cast<ssize_t>(start.input.size()));
  close(in.write);
  std::vector<std::string> arguments = {start.binary};
  arguments.insert(arguments.end(), start.arguments.begin(), start.arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const char* home = std::getenv("HOME");
  const std::string shaders = home != nullptr ? std::string(home) + "/.cache" : "";
  child_ = fork();
  CHECK(child_ >= 0);
  if (child_ == 0) {
    dup2(start.in_fd >= 0 ? start.in_fd : in.read, STDIN_FILENO);
    dup2(start.out_fd >= 0 ? start.out_fd : out.write, STDOUT_FILENO);
    dup2(err.write, STDERR_FILENO);
    // Shaders that a driver has compiled before are found again: compiling takes long and much
    // memory.
    if (!shaders.empty()) setenv("MESA_SHADER_CACHE_DIR", shaders.c_str(), 0);
    setenv("XDG_CACHE_HOME", folder.c_str(), 1);
    setenv("XDG_CONFIG_HOME", folder.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(in.read);
  close(out.write);
  close(err.write);
  out_ = out.read;
  err_ = err.read;
}

Program::~Program() {
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(out_);
  close(err_);
}

void Program::Interrupt() const { Signal(SIGINT); }

void Program::Signal(int number) const { kill(child_, number); }

Finished Program::Wait() {
  Finished finished;
  bool out_open = true;
  bool err_open = true;
  while (out_open || err_open) {
    std::array<pollfd, 2> waiting = {
        {{out_open ? out_ : -1, POLLIN, 0}, {err_open ? err_ : -1, POLLIN, 0}}};
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    if (waiting[0].revents != 0) out_open = ReadSome(out_, finished.out);
    if (waiting[1].revents != 0) err_open = ReadSome(err_, finished.err);
  }
  int status = 0;
  rusage usage{};
  while (wait4(child_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  child_ = -1;
  finished.peak_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  if (WIFEXITED(status)) finished.exit_code = WEXITSTATUS(status);
  return finished;
}

}  // namespace moestro::testing
