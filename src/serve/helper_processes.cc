// SPDX-License-Identifier: MIT
#include "serve/helper_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "base/result.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "base/text.h"
#include "grammar/grammar_checker.h"
#include "load/open_engine.h"
#include "sandbox/message_socket.h"
#include "text/conversation.h"

namespace moestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr double kLookEverySeconds = 0.2;
constexpr double kLongestPause = 60.0;            // between two tries
constexpr milliseconds kRequestPatience{30'000};  // for a reply to a request
constexpr milliseconds kLongestStart{120'000};    // for reading a vocabulary on a busy machine
constexpr const char* kProgram = "/proc/self/exe";

MessageSocket::Deadline StartsUntil() { return steady_clock::now() + kLongestStart; }

bool WriteNumber(MessageSocket& socket, uint32_t number) {
  std::string bytes;
  AppendNumber(bytes, number);
  return socket.Write(bytes, StartsUntil());
}

std::optional<uint32_t> ReadNumber(MessageSocket& socket) {
  const auto bytes = socket.Read(StartsUntil());
  if (!bytes || bytes->size() != sizeof(uint32_t)) return std::nullopt;
  std::string_view view = *bytes;
  return TakeNumber(view);
}

bool WriteSetup(const HelperSetup& setup, MessageSocket& socket) {
  for (const std::string* text : {&setup.model, &setup.engine, &setup.chat_template}) {
    if (!socket.Write(*text, StartsUntil())) return false;
  }
  return WriteNumber(socket, setup.parallel);
}

std::optional<HelperSetup> ReadSetup(MessageSocket& socket) {
  HelperSetup setup;
  for (std::string* text : {&setup.model, &setup.engine, &setup.chat_template}) {
    auto read = socket.Read(StartsUntil());
    if (!read) return std::nullopt;
    *text = *std::move(read);
  }
  const auto parallel = ReadNumber(socket);
  if (!parallel) return std::nullopt;
  setup.parallel = *parallel;
  return setup;
}

// Gives a spawner's number and socket to the server; number 0: no spawner.
bool Give(ChildStarter* starter, MessageSocket& socket) {
  if (starter == nullptr) return WriteNumber(socket, 0);
  const auto number = static_cast<uint32_t>(starter->spawner_id());
  return WriteNumber(socket, number) && socket.Send(starter->GiveSpawner());
}

}  // namespace

ChatFormat MakeChatFormat(const std::string& chat_template, const Vocab& vocab) {
  ChatModel model = ChatModelOf(vocab, chat_template);
  model.control_texts = vocab.control_texts();
  return ChatFormat::Make(model);
}

std::string HelperIdentity(uint64_t fingerprint, const ChatFormat& format) {
  return Format("{:016x} {}", fingerprint, format.description());
}

// A process that has started helpers, which live as long as the process does.
class HelperWatch::Process {
 public:
  struct Spawner {
    MessageSocket socket;
    int process = -1;
  };

  static Result<std::shared_ptr<Process>> Start() {
    TRY(auto ends, MessageSocket::MakePair());
    posix_spawn_file_actions_t actions{};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends.second.fd(), kHelpersSocket);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    }
    std::string name = "moestro";
    std::string argument(kHelpersArgument);
    std::array<char*, 3> arguments{name.data(), argument.data(), nullptr};
    pid_t process = -1;
    const int error = posix_spawn(&process, kProgram, &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      return Fail(Errc::kIo, "cannot begin {}: {}", kProgram, std::strerror(error));
    }
    return std::make_shared<Process>(process, std::move(ends.first));
  }

  Process(pid_t process, MessageSocket socket) : process_(process), socket_(std::move(socket)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    End();  // nothing in the process must end in order
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  // Kills the process, so that a thread that waits for it goes on. Any thread.
  void End() const { kill(process_, SIGKILL); }
  MessageSocket& socket() { return socket_; }

  // kIo: the process has ended.
  Result<Spawner> TakeSpawner() {
    const auto number = ReadNumber(socket_);
    if (!number) return Fail(Errc::kIo, "the process that starts them ends at once");
    if (*number == 0) return Spawner{.socket = MessageSocket(), .process = -1};
    return Spawner{.socket = socket_.Receive(), .process = static_cast<int>(*number)};
  }

 private:
  const pid_t process_;
  MessageSocket socket_;
};

HelperWatch::HelperWatch(HelperSetup setup, ChildStarter& grammars, ChildStarter* chat,
                         const std::function<bool()>& is_over)
    : setup_(std::move(setup)) {
  kinds_.push_back({.starter = &grammars});
  kinds_.push_back({.starter = chat});
  for (const Kind& kind : kinds_) {
    if (kind.starter != nullptr) kind.starter->ExpectAdoption(kRequestPatience, is_over);
  }
  watcher_ = std::thread([this] {
    Caught(
        [this] { Watch(); },
        [](std::string_view why) { LogWarning("helper processes are watched no more: {}", why); });
  });
}

HelperWatch::~HelperWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    if (starting_) starting_->End();
  }
  ends_.notify_one();
  watcher_.join();
}

std::vector<std::string> HelperWatch::Missing() const {
  std::vector<std::string> missing;
  for (const Kind& kind : kinds_) {
    std::string sentence = kind.starter != nullptr ? kind.starter->Missing() : "";
    if (!sentence.empty()) missing.push_back(std::move(sentence));
  }
  return missing;
}

bool HelperWatch::is_over() {
  const std::lock_guard lock(mutex_);
  return is_over_;
}

// False: the server ends.
bool HelperWatch::WaitsOut(double seconds) {
  std::unique_lock lock(mutex_);
  return !ends_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_over_; });
}

void HelperWatch::Watch() {
  double pause = kLookEverySeconds;
  while (WaitsOut(pause)) {
    if (MendAll()) {
      pause = kLookEverySeconds;
      continue;
    }
    const Status replaced = Replace();
    {
      const std::lock_guard lock(mutex_);
      starting_.reset();
    }
    if (is_over()) return;
    if (!replaced)
      LogWarning("helper processes are not started again: {}", replaced.error().message);
    pause = std::min(2 * pause, kLongestPause);
  }
}

// False: a spawner is gone.
bool HelperWatch::MendAll() {
  return std::ranges::all_of(
      kinds_, [](const Kind& kind) { return kind.starter == nullptr || kind.starter->Mend(); });
}

Status HelperWatch::Replace() {
  TRY(const std::shared_ptr<Process> process, Process::Start());
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return {};
    starting_ = process;
  }
  MessageSocket& socket = process->socket();
  const auto identity =
      WriteSetup(setup_, socket) ? socket.Read(StartsUntil()) : std::optional<std::string>();
  if (!identity) return Fail(Errc::kIo, "the process that starts them ends at once");
  if (*identity != setup_.identity) {
    return Fail(Errc::kIo, "{} is not what it was: '{}', not '{}'; start the server anew",
                Printable(setup_.model, 4096), Printable(*identity), Printable(setup_.identity));
  }
  for (Kind& kind : kinds_) {
    TRY(Process::Spawner spawner, process->TakeSpawner());
    if (kind.starter == nullptr || !spawner.socket.is_open() || kind.starter->Mend()) continue;
    kind.starter->Adopt(std::move(spawner.socket), spawner.process);
    kind.process = process;
  }
  return {};
}

namespace {

// Starts the helpers' spawners in the way the server does at its start.
Status StartHelpers(MessageSocket& server) {
  const auto setup = ReadSetup(server);
  if (!setup) return Fail(Errc::kIo, "the server is gone");
  ReturnLargeBlocksAtOnce();
  TRY(const ModelToLoad file,
      ModelToLoad::Open(setup->model, setup->engine, ModelToLoad::Use::kAny));
  TRY(const Vocab vocab, Vocab::Load(file.gguf()));
  TRY(const std::unique_ptr<GrammarChecker> grammars,
      GrammarChecker::Start(vocab, {.n_tokens = file.n_vocab(), .most_texts = setup->parallel}));
  const ChatFormat format = MakeChatFormat(setup->chat_template, vocab);
  const bool are_given =
      server.Write(HelperIdentity(file.id().fingerprint, format), StartsUntil()) &&
      Give(&grammars->starter(), server) && Give(format.starter(), server);
  if (are_given) server.Read(std::nullopt);  // until the server has ended
  std::_Exit(EXIT_SUCCESS);                  // the spawners end with this process
}

}  // namespace

int StartHelpersMain() {
  close_range(kHelpersSocket + 1, ~0U, 0);
  fcntl(kHelpersSocket, F_SETFD, FD_CLOEXEC);
  MessageSocket server(kHelpersSocket);
  return StartHelpers(server) ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace moestro
