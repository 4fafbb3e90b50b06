// SPDX-License-Identifier: MIT
#include "serve/server.h"

#include <arpa/inet.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "base/number.h"
#include "base/result.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "chat/chat_format.h"
#include "engine/engine.h"
#include "grammar/grammar_checker.h"
#include "grammar/grammar_process.h"
#include "load/open_engine.h"
#include "serve/access.h"
#include "serve/api_keys.h"
#include "serve/helper_processes.h"
#include "serve/http_server.h"
#include "serve/readiness.h"
#include "serve/ready_model.h"
#include "serve/request_log.h"
#include "serve/routes.h"
#include "serve/scheduler.h"

namespace moestro {
namespace {

// Memory for connections, requests and replies, beside the engine's.
constexpr uint64_t kRequestBytes = 128 * kMiB;
constexpr uint32_t kDefaultContext = 16384;
constexpr uint32_t kSmallestContext = 4096;
// Attention of a text that goes through the layers at once takes memory by the square.
constexpr uint32_t kMostAtOnce = 2048;
constexpr uint32_t kMostInPieces = 8192;
constexpr uint32_t kSmallestEmbeddingContext = 512;

bool IsLoopback(const std::string& host) {
  if (host == "localhost" || host == "::1" || host.starts_with(kUnixHost)) return true;
  in_addr address{};  // a name may begin with "127.", too
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24U == 127;
}

// This machine's name as a client may use it; empty if no request can have that name.
std::vector<std::string> NamesOfThisMachine() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return ParseHosts(name.data()).value_or(std::vector<std::string>());
}

// Turns signals into calls, in a thread of its own. The first signal drains the server; a second
// one ends the process, and so does the end of the time for an orderly end.
class StopSignals {
 public:
  // Makes a signal end the process at once, until StopSignals is made: no work must end in order
  // yet, and a process that forks should have no second thread.
  static void EndAtOnce() {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action = {};
      if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
      action = {};
      action.sa_handler = [](int) { _exit(0); };
      sigaction(number, &action, nullptr);
    }
  }
  // Blocks the signals for this thread and for threads and processes that it starts from now on.
  static void Block() { SetMask(SIG_BLOCK); }
  static void Unblock() { SetMask(SIG_UNBLOCK); }
  // `drains` is called once a signal has come, before the scheduler drains.
  StopSignals(double drain_seconds, std::function<void()> drains)
      : drain_seconds_(drain_seconds), drains_(std::move(drains)), waiter_([this] {
          // A signal that ends nothing would be worse than an exit at once.
          Caught([this] { Wait(); }, [](std::string_view) { std::_Exit(1); });
        }) {}
  ~StopSignals() {
    {
      const std::lock_guard lock(mutex_);
      scheduler_ = nullptr;
      is_over_ = true;
    }
    pthread_kill(waiter_.native_handle(), SIGTERM);  // wakes the waiter
    waiter_.join();
  }
  // From now on a signal drains the scheduler; before this call a signal ends the process. null:
  // the scheduler has ended.
  void SetScheduler(Scheduler* scheduler) {
    const std::lock_guard lock(mutex_);
    was_ready_ = true;
    scheduler_ = scheduler;
  }

 private:
  // Seconds beyond those for answers: for the step under way, saving prefixes, closing connections.
  static constexpr double kEndSeconds = 1.8;

  // Signals of which a second one ends the process at once.
  static sigset_t Insisting() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    return signals;
  }
  // All handled signals. A terminal that closes sends SIGHUP more than once; under nohup SIGHUP
  // stays ignored.
  static sigset_t Signals() {
    sigset_t signals = Insisting();
    struct sigaction action = {};
    if (sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&signals, SIGHUP);
    }
    return signals;
  }
  static void SetMask(int how) {
    const sigset_t signals = Signals();
    pthread_sigmask(how, &signals, nullptr);
  }
  void Wait() {
    const sigset_t signals = Signals();
    sigwait(&signals, &first_);
    if (IsOver()) return;
    drains_();
    EndIfLoading();
    Tell([](Scheduler& scheduler) { scheduler.Drain(); });
    if (WaitsOut(drain_seconds_)) return;
    Tell([](Scheduler& scheduler) { scheduler.Stop(); });
    if (WaitsOut(kEndSeconds)) return;
    pollfd log{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (poll(&log, 1, 0) > 0) LogWarning("ended before all was saved, which took too long");
    std::_Exit(0);
  }
  // True: the process ends in order. Does not come back from a second signal.
  bool WaitsOut(double seconds) {
    const sigset_t signals = Insisting();
    constexpr double kNanoseconds = 1e9;
    const double whole = std::floor(std::min(seconds, 1e9));
    const timespec time{
        .tv_sec = static_cast<time_t>(whole),
        .tv_nsec = static_cast<int64_t>((std::min(seconds, 1e9) - whole) * kNanoseconds)};
    int got = 0;
    do {
      got = sigtimedwait(&signals, nullptr, &time);
    } while ((got < 0 && errno == EINTR) || IsOfTheFirst(got));
    if (got < 0) return false;
    if (!IsOver()) std::_Exit(1);
    return true;
  }
  // Whether `signal_number` was sent along with the first signal: managers send SIGTERM and SIGHUP
  // at once, and the kernel hands over SIGHUP first. True once.
  bool IsOfTheFirst(int signal_number) {
    if (first_ != SIGHUP || signal_number != SIGTERM || IsOver()) return false;
    first_ = SIGTERM;
    return true;
  }
  bool IsOver() {
    const std::lock_guard lock(mutex_);
    return is_over_;
  }
  void EndIfLoading() {
    const std::lock_guard lock(mutex_);
    if (!is_over_ && !was_ready_) std::_Exit(0);  // no work must end in order
  }
  template <class Call>
  void Tell(const Call& call) {
    const std::lock_guard lock(mutex_);
    if (scheduler_ != nullptr) call(*scheduler_);
  }

  const double drain_seconds_;
  const std::function<void()> drains_;
  std::mutex mutex_;
  Scheduler* scheduler_ = nullptr;
  bool was_ready_ = false;
  bool is_over_ = false;
  int first_ = 0;       // of the signals; only the waiter uses it
  std::thread waiter_;  // last member: uses the others
};

std::string NameOf(const std::string& path) { return std::filesystem::path(path).stem().string(); }

// Plans room for one full context and for other texts beside it.
void TakeContext(const ServerOptions& options, uint64_t position_bytes, uint32_t ctx,
                 EngineOptions& engine) {
  engine.ctx = ctx;
  const uint64_t beside = options.cache_ram > 0 ? options.cache_ram / position_bytes : ctx;
  engine.positions = static_cast<uint32_t>(
      std::min<uint64_t>(ctx + beside, std::numeric_limits<int32_t>::max() / 2));
}

// Plans room for embeddings. A default context is the largest that fits, in few steps: a text that
// cannot be split goes through the layers at once, which takes memory.
void ChooseRoomForEmbeddings(const ServerOptions& options, const ModelToLoad& model,
                             EngineOptions& engine) {
  engine.caller_bytes += kRequestBytes;
  const uint32_t most = std::max(model.n_ctx_train(), 1U);
  if (options.has_ctx) {
    engine.ctx = std::min(engine.ctx, most);
    return;
  }
  engine.ctx = std::min(most, model.embedding_form().may_split() ? kMostInPieces : kMostAtOnce);
  const auto fits = [&] {
    return PlanEngine(options.model, engine, ModelToLoad::Use::kAny).has_value();
  };
  while (engine.ctx > kSmallestEmbeddingContext && !fits()) {
    engine.ctx = std::max(engine.ctx / 2, kSmallestEmbeddingContext);
  }
}

// Plans room for requests and contexts. A default context grows with the budget, but is the
// smallest where that does not fit: so the smallest budget that the engine names is one that works,
// and so is each above it.
Status ChooseRoom(const ServerOptions& options, const ModelToLoad& model, bool has_text,
                  EngineOptions& engine) {
  if (model.embeds()) {
    ChooseRoomForEmbeddings(options, model, engine);
    return {};
  }
  uint64_t requests = kRequestBytes;
  // A process for each text's grammar, and two to try new ones out.
  if (has_text) requests += (options.parallel + 2) * kGrammarMemory;
  engine.caller_bytes += requests;
  TRY(const uint64_t position, model.PositionBytes(engine.kv_type));
  const uint64_t each = std::max<uint64_t>(position, 1);
  engine.sequences = options.parallel;
  if (options.has_ctx) {
    TakeContext(options, each, std::min(engine.ctx, model.n_ctx_train()), engine);
    return {};
  }
  // Half of a quarter of the rest.
  const uint64_t budget = engine.ram_bytes > 0 ? engine.ram_bytes : UnhinderedMemory();
  const uint64_t affordable = (budget - std::min(budget, requests)) / 8 / each;
  const auto wanted =
      static_cast<uint32_t>(std::clamp<uint64_t>(affordable, kSmallestContext, kDefaultContext));
  TakeContext(options, each, std::min(wanted, model.n_ctx_train()), engine);
  if (engine.ctx <= kSmallestContext || PlanEngine(options.model, engine)) return {};
  TakeContext(options, each, kSmallestContext, engine);
  return {};
}

ServedModel MakeCard(const ServerOptions& options, const ModelToLoad& model) {
  ServedModel card{
      .id = options.alias.empty() ? NameOf(options.model) : options.alias,
      .created = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()),
      .n_ctx_train = model.n_ctx_train(),
      .n_vocab = model.n_vocab(),
      .size_bytes = model.gguf().file_bytes(),
      .architecture = model.arch_name(),
      .digest = Format("{:016x}", model.id().fingerprint),
      .path = options.model};
  std::map<ggml_type, uint64_t> bytes;
  for (const TensorInfo& tensor : model.gguf().tensors()) {
    uint64_t n = 1;
    for (const int64_t ne : tensor.ne) n *= static_cast<uint64_t>(ne);
    card.n_params += n;
    bytes[tensor.type] += tensor.extent.length;
  }
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& of_type) { return of_type.second; });
  if (most != bytes.end()) card.quantization = ggml_type_name(most->first);
  const EmbeddingForm& form = model.embedding_form();
  if (model.embeds()) {
    card.n_embd = form.n_embd;
    card.pooling = ToText(form.pooling);
  } else {
    card.no_embeddings = NoEmbeddingsText(form.pooling);
  }
  return card;
}

std::vector<std::string> CapabilitiesOf(const Vocab& vocab, const ChatFormat& format) {
  std::vector<std::string> capabilities = {"completion"};
  if (!vocab.has_text()) return capabilities;
  capabilities.emplace_back("tools");  // described in words where the template has none
  if (format.has_thoughts()) capabilities.emplace_back("thinking");
  return capabilities;
}

Status CheckSavedTextsFolder(const std::string& folder) {
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
    TRY(keys, ReadKeyFile(options.key_file));
  }
  if (keys.empty() && !IsLoopback(options.host)) {
    return Fail(Errc::kUsage,
                "--host {} can be reached from other machines: give --api-key-file, or serve on "
                "127.0.0.1",
                options.host);
  }
  if (keys.empty() && std::ranges::find(options.cors_origins, "*") != options.cors_origins.end()) {
    return Fail(Errc::kUsage,
                "--cors '*' lets every page that is looked at here use the model: give "
                "--api-key-file, or list the origins");
  }
  return keys;
}

AccessRules AccessFor(const ServerOptions& options, bool has_keys) {
  AccessRules access{
      .has_keys = has_keys, .hosts = NamesOfThisMachine(), .origins = options.cors_origins};
  access.hosts.insert(access.hosts.end(), options.allowed_hosts.begin(),
                      options.allowed_hosts.end());
  return access;
}

Result<std::unique_ptr<ResponseStore>> OpenResponses(const ServerOptions& options) {
  if (options.responses.folder.empty()) return nullptr;
  return ResponseStore::Open(options.responses);
}

std::string AddressOf(const std::string& host, int port) {
  if (host.starts_with(kUnixHost)) return host;
  const bool is_v6 = host.contains(':');
  return Format("http://{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

namespace {

// Makes the format and logs its description and its warnings.
ChatFormat FormatFor(const std::string& chat_template, const Vocab& vocab) {
  ChatFormat format = MakeChatFormat(chat_template, vocab);
  LogInfo("{}", format.description());
  for (const std::string& warning : format.warnings()) LogWarning("{}", warning);
  return format;
}

ServerFacts FactsOf(Engine& engine) {
  return {.n_expert_layers = engine.id().shape.n_layer,
          .n_experts = engine.id().shape.n_expert,
          .ram = engine.memory().budget,
          .disk_bandwidth = engine.ProbeDiskBandwidth().value_or(0.0),
          .memory_bandwidth = engine.ProbeMemoryBandwidth().value_or(0.0)};
}

// Adds the chat format to the model's card.
void AddFormat(const std::string& chat_template, const Vocab& vocab, const ChatFormat& format,
               ServedModel& card) {
  if (card.n_embd > 0) {
    card.capabilities = {"embedding"};
    return;
  }
  card.chat_template = chat_template;
  card.capabilities = CapabilitiesOf(vocab, format);
  card.warnings = format.warnings();
}

// Starts the checker's processes before other threads, since only a process of one thread forks
// well. Signals are blocked in these processes: a service manager signals all processes of a
// service, and the checker is needed for the answers that still end.
Result<std::unique_ptr<GrammarChecker>> StartGrammars(const ServerOptions& options,
                                                      const Vocab& vocab, const ModelToLoad& file) {
  if (!vocab.has_text()) {
    LogWarning("{} has no tokenizer: only completions of prompts of tokens work, without text",
               options.model);
  }
  StopSignals::Block();
  auto grammars =
      GrammarChecker::Start(vocab, {.n_tokens = file.n_vocab(), .most_texts = options.parallel});
  StopSignals::Unblock();
  return grammars;
}

// `grammars` must outlive the scheduler.
SchedulerOptions SchedulerFor(const ServerOptions& options, const DraftOptions& draft,
                              const Engine& engine, const std::string& chat_template,
                              GrammarChecker& grammars) {
  return {.parallel = std::min(options.parallel, engine.chunk()),
          .queue = options.queue,
          .gap_seconds = options.gap_seconds,
          .checkpoint_every = options.checkpoint_every,
          .draft = draft,
          .cache_folder = options.cache_folder,
          .cache_key = HashOf(chat_template),
          .cache_disk = options.cache_disk,
          .saved_texts_folder = options.saved_texts_folder,
          .open_grammar = [&grammars](const Grammar& g) { return grammars.Open(g); }};
}

}  // namespace

Result<ServerNeeds> MeasureNeeds(const ServerOptions& options) {
  TRY(const ModelToLoad file,
      ModelToLoad::Open(options.model, options.engine.engine, ModelToLoad::Use::kAny));
  TRY_STATUS(file.CheckDecodesAlone("a server"));
  TRY_STATUS(CheckDraft(options.draft, options.engine, file));
  TRY(const Vocab vocab, Vocab::Load(file.gguf()));
  TRY(const std::string chat_template, ChosenTemplate(options.chat_template, vocab));
  ServerNeeds needs{.card = MakeCard(options, file)};
  AddFormat(chat_template, vocab, MakeChatFormat(chat_template, vocab), needs.card);
  const auto in_budget = [&](uint64_t ram) -> Result<EngineOptions> {
    EngineOptions engine = options.engine;
    TRY([[maybe_unused]] const DraftOptions draft, PrepareDraft(options.draft, file, engine));
    engine.device = {.name = "cpu"};
    engine.ram_bytes = ram;
    TRY_STATUS(ChooseRoom(options, file, vocab.has_text(), engine));
    return engine;
  };
  constexpr uint64_t kPlenty = uint64_t{1} << 46U;
  TRY(const EngineOptions poor, in_budget(1));
  TRY(EngineOptions rich, in_budget(kPlenty));
  TRY(const FixedMemory least, MeasureFixed(options.model, poor, ModelToLoad::Use::kAny));
  TRY(const FixedMemory most, MeasureFixed(options.model, rich, ModelToLoad::Use::kAny));
  rich.takes_smallest = true;
  TRY(const MemoryPlan plan, PlanEngine(options.model, rich, ModelToLoad::Use::kAny));
  needs.card.n_ctx = rich.ctx;
  needs.smallest = AlignUp(least.smallest, kMiB);
  // Slots are a little larger than experts, and pages need tables.
  const uint64_t work = most.work - std::min(most.work, most.least_work);
  const uint64_t experts = plan.all_experts + plan.all_experts / 64;
  needs.best = std::max(needs.smallest, AlignUp(most.smallest + work + experts, kMiB));
  return needs;
}

Json NeedsJson(const ServerNeeds& needs) {
  Json json = Json::Object();
  json.Set("smallest", needs.smallest)
      .Set("best", needs.best)
      .Set("model", Json::Verbatim(ModelBody(needs.card)))
      .Set("tag", Json::Verbatim(OllamaTagBody(needs.card)))
      .Set("show", Json::Verbatim(OllamaShowBody(needs.card)));
  return json;
}

Status Serve(const ServerOptions& options, const std::function<void(const std::string&)>& listens) {
  TRY(std::vector<std::string> keys, ReadKeys(options));
  TRY_STATUS(CheckSavedTextsFolder(options.saved_texts_folder));
  TRY(const std::unique_ptr<ResponseStore> responses, OpenResponses(options));
  StopSignals::EndAtOnce();
  ReturnLargeBlocksAtOnce();  // requests' bodies
  ServiceNotice notice(ServiceNotice::AddressOfEnvironment());
  notice.Send(Format("STATUS=reads the header of {}", Printable(options.model, 4096)));
  TRY(ModelToLoad file,
      ModelToLoad::Open(options.model, options.engine.engine, ModelToLoad::Use::kAny));
  TRY_STATUS(file.CheckDecodesAlone("a server"));
  TRY_STATUS(CheckDraft(options.draft, options.engine, file));
  TRY(const Vocab vocab, Vocab::Load(file.gguf()));
  TRY(const std::unique_ptr<GrammarChecker> grammars, StartGrammars(options, vocab, file));
  TRY(const std::string chat_template, ChosenTemplate(options.chat_template, vocab));
  const ChatFormat format = FormatFor(chat_template, vocab);
  AccessRules access = AccessFor(options, !keys.empty());
  Routes routes({.keys = std::move(keys), .access = std::move(access)});
  RequestLines log(STDERR_FILENO);
  const auto ended = [&](const RequestRecord& record) {
    RequestRecord named = record;
    named.route = Routes::NameOf(record.path);
    if (options.logs_requests) log.Write(named);
  };
  StopSignals::Block();
  StopSignals signals(options.drain_seconds, [&] {
    notice.Send("STOPPING=1\nSTATUS=ends what is under way");
    routes.SetDraining();
  });
  TRY(std::unique_ptr<HttpServer> http,
      HttpServer::Listen({.host = options.host,
                          .port = static_cast<uint16_t>(options.port),
                          .kept_paths = Routes::KeptPaths()},
                         {.admit = [&](const HttpRequest& r) { return routes.Admit(r); },
                          .answer = [&](HttpRequest& r) { return routes.Answer(r); },
                          .refuse = Routes::Refuse,
                          .headers = [&](const HttpRequest& r) { return routes.HeadersFor(r); },
                          .ended = ended}));
  const std::string address = AddressOf(options.host, http->port());
  listens(address);
  notice.Send(Format("READY=1\nSTATUS=reads {}; /health says 503 until it answers",
                     Printable(options.model, 4096)));

  ServedModel card = MakeCard(options, file);
  AddFormat(chat_template, vocab, format, card);
  EngineOptions engine_options = options.engine;
  TRY(const DraftOptions draft, PrepareDraft(options.draft, file, engine_options));
  engine_options.device.goes_on_if_lost = true;
  TRY_STATUS(ChooseRoom(options, file, vocab.has_text(), engine_options));
  const uint64_t fingerprint = file.id().fingerprint;
  TRY(const std::unique_ptr<Engine> engine, OpenEngine(std::move(file), engine_options));
  card.n_ctx = engine->n_ctx();
  Embedder* const embedder = FindEmbedder(*engine);
  card.n_embd = embedder != nullptr ? embedder->n_embd() : 0;
  LogInfo("{}", engine->facts().description);
  SchedulerOptions wanted = SchedulerFor(options, draft, *engine, chat_template, *grammars);
  wanted.embedder = embedder;
  Scheduler scheduler(*engine, vocab, std::move(wanted));
  Preparing preparing({.is_over = [&] { return scheduler.is_draining(); }});
  const HelperWatch helpers({.model = options.model,
                             .engine = options.engine.engine,
                             .chat_template = chat_template,
                             .parallel = options.parallel,
                             .identity = HelperIdentity(fingerprint, format)},
                            grammars->starter(), format.starter(),
                            [&] { return scheduler.is_draining(); });
  const ReadyModel model{.card = card,
                         .facts = FactsOf(*engine),
                         .vocab = vocab,
                         .format = format,
                         .grammars = *grammars,
                         .scheduler = scheduler,
                         .preparing = preparing,
                         .helpers = helpers,
                         .responses = responses.get(),
                         .keeps_states = engine->facts().has_states,
                         .request_seconds = options.request_seconds};
  routes.SetReady(model);
  notice.Send(Format("STATUS=serves {} on {}", Printable(card.id, 1024), Printable(address)));
  signals.SetScheduler(&scheduler);
  Status ran = scheduler.Run();
  signals.SetScheduler(nullptr);
  http.reset();  // its threads use objects that end with this function
  return ran;
}

}  // namespace moestro
