// SPDX-License-Identifier: MIT
#include "tests/support/rpc_server_testing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/input_file.h"
#include "tests/support/socket_client_testing.h"

namespace moestro::testing {

std::string RpcServer::Program() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  // Debian keeps it out of PATH, in a folder for the machine's architecture.
  for (const fs::directory_entry& folder : fs::directory_iterator("/usr/libexec", ignored)) {
    const fs::path program = folder.path() / "llama/bin/ggml-rpc-server";
    if (fs::exists(program, ignored)) return program;
  }
  return {};
}

RpcServer::RpcServer(uint16_t at) : port_(at > 0 ? at : SocketClient::FreePort()) {
  const std::string program = Program();
  const std::string port = std::to_string(port_);
  process_ = fork();
  if (process_ == 0) {
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    execl(program.c_str(), program.c_str(), "-H", "127.0.0.1", "-p", port.c_str(), "-t", "1", "-d",
          "CPU", nullptr);
    _exit(127);
  }
  for (int i = 0; i < 400; ++i) {
    if (SocketClient(port_).is_open()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  ADD_FAILURE() << program << " does not listen";
}

void RpcServer::Kill() {
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

void RpcServer::Stop() const { kill(process_, SIGSTOP); }
void RpcServer::GoOn() const { kill(process_, SIGCONT); }

uint64_t RpcServer::Peak() const {
  const auto status = ReadSmallFile("/proc/" + std::to_string(process_) + "/status");
  return FieldOf(status.value_or(""), "VmHWM").value_or(0) * 1024;
}

}  // namespace moestro::testing
