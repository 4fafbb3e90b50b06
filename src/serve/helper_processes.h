// SPDX-License-Identifier: MIT
// Keeps the processes running that render templates and follow grammars. Their spawners are forked
// before the server has threads (ChildStarter). When one has died, the server begins the program
// once more, as a process that does as the server did at its start and gives its spawners to the
// server (StartHelpersMain()): a process of many threads cannot be forked well, but it can begin a
// program.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "chat/chat_format.h"
#include "model/vocab.h"
#include "sandbox/child_starter.h"

namespace moestro {

// The first argument of the program that starts helpers, and the number of its socket.
inline constexpr std::string_view kHelpersArgument = "start-helpers";
inline constexpr int kHelpersSocket = 3;

// The parts that helpers are made of.
struct HelperSetup {
  std::string model;          // path
  std::string engine;         // the engine's name as given
  std::string chat_template;  // Jinja text
  uint32_t parallel = 0;
  std::string identity;  // HelperIdentity() of the server's own parts
};

// Identity of helpers: equal if model and chat format are equal.
std::string HelperIdentity(uint64_t fingerprint, const ChatFormat& format);

// The format of a model's conversations with the chosen template.
ChatFormat MakeChatFormat(const std::string& chat_template, const Vocab& vocab);

class HelperWatch {
 public:
  // `grammars` and `chat` (null: no template) must outlive this. `is_over` turns true when the
  // server ends, so that no thread waits for helpers any longer.
  HelperWatch(HelperSetup setup, ChildStarter& grammars, ChildStarter* chat,
              const std::function<bool()>& is_over);
  ~HelperWatch();
  HelperWatch(const HelperWatch&) = delete;
  HelperWatch& operator=(const HelperWatch&) = delete;

  // One sentence for each kind of helper that is missing now. Any thread, at once.
  std::vector<std::string> Missing() const;

 private:
  class Process;
  struct Kind {
    ChildStarter* starter = nullptr;
    std::shared_ptr<Process> process = {};  // owner of the spawner; null: this server
  };

  void Watch();
  bool MendAll();
  Status Replace();
  bool WaitsOut(double seconds);
  bool is_over();

  const HelperSetup setup_;
  std::vector<Kind> kinds_;  // the watcher's; grammars, then chat
  std::mutex mutex_;         // guards the next ones
  std::condition_variable ends_;
  bool is_over_ = false;
  std::shared_ptr<Process> starting_;
  std::thread watcher_;  // last member: uses the others
};

// The process that starts helpers. Ends when the server does; the exit code.
int StartHelpersMain();

}  // namespace moestro
