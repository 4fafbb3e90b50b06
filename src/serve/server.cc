// SPDX-License-Identifier: MIT
#include "serve/server.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/system_limits.h"
#include "chat/chat_format.h"
#include "engine/engine.h"
#include "model/model_file.h"
#include "serve/http_server.h"
#include "serve/routes.h"
#include "serve/scheduler.h"
#include "text/grammar_checker.h"
#include "text/grammar_process.h"

namespace moestro {
namespace {

// What connections, requests and replies take beside the engine.
constexpr uint64_t kRequestBytes = 128 * kMiB;
constexpr uint32_t kDefaultContext = 16384;
constexpr uint32_t kSmallestContext = 4096;

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Turns signals into calls, in a thread of its own. At most one at a time.
class StopSignals {
 public:
  // Blocks the signals for this thread and all that it starts from now on.
  static void Block() {
    const sigset_t signals = Signals();
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  }
  StopSignals() : waiter_([this] { Wait(); }) {}
  ~StopSignals() {
    Finish();
    pthread_kill(waiter_.native_handle(), SIGTERM);  // wakes it up
    waiter_.join();
  }
  // From now on a signal drains the scheduler; before, it ends the process.
  void SetScheduler(Scheduler& scheduler, double drain_seconds) {
    const std::lock_guard lock(mutex_);
    scheduler_ = &scheduler;
    drain_seconds_ = drain_seconds;
  }
  // The work is over.
  void Finish() {
    const std::lock_guard lock(mutex_);
    is_finished_ = true;
    finished_.notify_all();
  }

 private:
  static sigset_t Signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    return signals;
  }
  void Wait() {
    const sigset_t signals = Signals();
    int which = 0;
    sigwait(&signals, &which);
    std::unique_lock lock(mutex_);
    if (is_finished_) return;
    if (scheduler_ == nullptr) std::_Exit(0);  // still loading: there is nothing to end in order
    scheduler_->Drain();
    finished_.wait_for(lock, std::chrono::duration<double>(drain_seconds_),
                       [this] { return is_finished_; });
    if (!is_finished_) scheduler_->Stop();
  }

  std::mutex mutex_;
  std::condition_variable finished_;
  Scheduler* scheduler_ = nullptr;
  double drain_seconds_ = 0.0;
  bool is_finished_ = false;
  std::thread waiter_;  // last: it uses the others
};

std::string NameOf(const std::string& path) { return std::filesystem::path(path).stem().string(); }

// Room for what requests take, for one full context and for others' texts beside it.
void ChooseRoom(const ServerOptions& options, const ModelSpec& spec, bool has_text,
                EngineOptions& engine) {
  uint64_t requests = kRequestBytes;
  // A process for each text's grammar, and one to try new ones out.
  if (has_text) requests += (options.parallel + 1) * kGrammarMemory;
  engine.caller_bytes += requests;
  const uint64_t each = std::max<uint64_t>(Engine::PositionBytes(spec, engine.kv_type), 1);
  if (!options.has_ctx) {
    // Half of a quarter of the rest.
    const uint64_t budget = engine.ram_bytes > 0 ? engine.ram_bytes : AvailableMemory();
    const uint64_t affordable = (budget - std::min(budget, requests)) / 8 / each;
    engine.ctx =
        static_cast<uint32_t>(std::clamp<uint64_t>(affordable, kSmallestContext, kDefaultContext));
  }
  engine.ctx = std::min(engine.ctx, spec.n_ctx_train);
  const uint64_t beside = options.cache_ram > 0 ? options.cache_ram / each : engine.ctx;
  engine.positions = static_cast<uint32_t>(
      std::min<uint64_t>(engine.ctx + beside, std::numeric_limits<int32_t>::max() / 2));
  engine.sequences = options.parallel;
}

ServedModel MakeCard(const ServerOptions& options, const ModelFile& model) {
  ServedModel card{
      .id = options.alias.empty() ? NameOf(options.model) : options.alias,
      .created = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()),
      .n_ctx_train = model.spec.n_ctx_train,
      .n_vocab = model.spec.n_vocab,
      .size_bytes = model.gguf.file_bytes()};
  for (const TensorInfo& tensor : model.gguf.tensors()) {
    uint64_t n = 1;
    for (const int64_t ne : tensor.ne) n *= static_cast<uint64_t>(ne);
    card.n_params += n;
  }
  return card;
}

Status CheckSlotFolder(const std::string& folder) {
  std::error_code unknown;
  if (folder.empty() || std::filesystem::is_directory(folder, unknown)) return {};
  return Fail(Errc::kUsage, "--slot-save-path {} is no folder; make it first", folder);
}

std::string HashOf(std::string_view text) {
  Fnv1a hash;
  hash.Add(text);
  return Format("{:016x}", hash.value());
}

}  // namespace

Result<std::vector<std::string>> ReadKeys(const ServerOptions& options) {
  std::vector<std::string> keys;
  if (!options.key_file.empty()) {
    std::ifstream file(options.key_file);
    for (std::string line; std::getline(file, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty()) keys.push_back(line);
    }
    if (!file.eof()) {
      return Fail(Errc::kIo, "cannot read the keys in {}: {}", options.key_file,
                  std::strerror(errno));
    }
    if (keys.empty()) {
      return Fail(Errc::kUsage, "{} holds no key; write one on a line of its own",
                  options.key_file);
    }
  }
  if (keys.empty() && !IsLoopback(options.host)) {
    return Fail(Errc::kUsage,
                "--host {} can be reached from other machines: give --api-key-file, or serve on "
                "127.0.0.1",
                options.host);
  }
  return keys;
}

Status Serve(const ServerOptions& options, const std::function<void(const std::string&)>& listens) {
  TRY(std::vector<std::string> keys, ReadKeys(options));
  TRY_STATUS(CheckSlotFolder(options.slot_folder));
  StopSignals::Block();
  ReturnLargeBlocksAtOnce();  // requests' bodies
  TRY(ModelFile file, ModelFile::Open(options.model));
  Routes routes({.keys = std::move(keys), .cors_origin = options.cors_origin});
  TRY(std::unique_ptr<HttpServer> http,
      HttpServer::Listen({.host = options.host,
                          .port = static_cast<uint16_t>(options.port),
                          .headers = routes.headers()},
                         {.admit = [&](const HttpRequest& r) { return routes.Admit(r); },
                          .answer = [&](const HttpRequest& r) { return routes.Answer(r); },
                          .refuse = Routes::Refuse}));
  const bool is_v6 = options.host.contains(':');
  listens(
      Format("http://{}{}{}:{}", is_v6 ? "[" : "", options.host, is_v6 ? "]" : "", http->port()));
  StopSignals signals;

  TRY(const Vocab vocab, Vocab::Load(file.gguf));
  if (!vocab.has_text()) {
    LogWarning("{} has no tokenizer: only completions of prompts of tokens work, without text",
               options.model);
  }
  TRY(const std::unique_ptr<GrammarChecker> grammars,
      GrammarChecker::Start(vocab,
                            {.n_tokens = file.spec.n_vocab, .most_texts = options.parallel}));
  const ChatFormat format = ChatFormat::Make(
      {.template_text = vocab.chat_template(),
       .bos = vocab.begin_text(),
       .eos = vocab.end_text(),
       .has_chatml_marks = vocab.has_token("<|im_start|>") && vocab.has_token("<|im_end|>")});
  LogInfo("{}", format.description());

  ServedModel card = MakeCard(options, file);
  EngineOptions engine_options = options.engine;
  ChooseRoom(options, file.spec, vocab.has_text(), engine_options);
  ServerFacts facts{.n_expert_layers = file.spec.n_expert_layers(),
                    .n_experts = file.spec.router.n_expert};
  TRY(const std::unique_ptr<Engine> engine, Engine::Open(std::move(file), engine_options));
  card.n_ctx = engine->n_ctx();
  facts.ram = engine->memory().budget;
  facts.disk_bandwidth = engine->ProbeDiskBandwidth().value_or(0.0);
  facts.memory_bandwidth = engine->ProbeMemoryBandwidth().value_or(0.0);
  LogInfo("{}", engine->description());
  Scheduler scheduler(*engine, vocab,
                      {.parallel = std::min(options.parallel, engine->chunk()),
                       .queue = options.queue,
                       .gap_seconds = options.gap_seconds,
                       .cache_folder = options.cache_folder,
                       .cache_key = HashOf(vocab.chat_template()),
                       .cache_disk = options.cache_disk,
                       .slot_folder = options.slot_folder,
                       .open_grammar = [&](const Grammar& g) { return grammars->Open(g); }});
  std::mutex preparing;
  const ReadyModel model{.card = card,
                         .facts = facts,
                         .vocab = vocab,
                         .format = format,
                         .grammars = *grammars,
                         .scheduler = scheduler,
                         .preparing = preparing};
  routes.SetReady(model);
  signals.SetScheduler(scheduler, options.drain_seconds);
  scheduler.Run();
  signals.Finish();
  http.reset();  // its threads use what ends here
  return {};
}

}  // namespace moestro
