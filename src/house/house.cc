// SPDX-License-Identifier: MIT
#include "house/house.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/work_limit.h"
#include "serve/http_server.h"
#include "serve/readiness.h"

namespace moestro {
namespace {

using namespace std::chrono_literals;

// The watcher's pause while a process starts or ends, and else.
constexpr auto kBusyLook = 10ms;
constexpr auto kQuietLook = 200ms;
// Seconds between two requests for a process's health.
constexpr double kHealthEvery = 1.0;
constexpr double kStoppedEvery = 0.3;
// Seconds for an answer of /health, so that no process holds up the watcher.
constexpr double kHealthSeconds = 0.25;
// Seconds for the end of a process beside its --drain.
constexpr double kEndSeconds = 4.0;
// Seconds until a model that could not be measured is measured again for a request.
constexpr double kErrorLasts = 5.0;
// Seconds for the measuring of a model.
constexpr double kMeasureSeconds = 120.0;
// The pause between two checks whether a waiting client has left.
constexpr auto kPoll = 100ms;

// A folder that only this user can enter.
Result<std::string> MakeSocketFolder() {
  const char* runtime = ::getenv("XDG_RUNTIME_DIR");
  const char* temporary = ::getenv("TMPDIR");
  for (const char* place : {runtime, temporary, "/tmp"}) {
    if (place == nullptr || place[0] != '/') continue;
    std::string folder = Format("{}/moestro-XXXXXX", place);
    constexpr size_t kMostPath = 90;  // of the 107 bytes of a socket's path
    if (folder.size() > kMostPath) continue;
    if (::mkdtemp(folder.data()) != nullptr) return folder;
  }
  return Fail(Errc::kIo,
              "cannot make a folder for sockets in $XDG_RUNTIME_DIR, $TMPDIR or /tmp: {}",
              std::strerror(errno));
}

ApiError Unavailable(std::string message, int status = 503) {
  return {.status = status,
          .type = status >= 500 ? "unavailable_error" : "invalid_request_error",
          .message = std::move(message)};
}

uint64_t NumberIn(const Json& json, std::string_view key) {
  const auto found = json.Find(key);
  return static_cast<uint64_t>(found ? found->integer().value_or(0) : 0);
}

// Begins again where memory was short.
template <class Work>
void UntilDone(const Work& work) {
  const auto done = [&] {
    work();
    return true;
  };
  while (!Caught(done, [](std::string_view) { return false; })) std::this_thread::sleep_for(kPoll);
}

std::string PartOf(const Json& json, std::string_view key) {
  const auto found = json.Find(key);
  return found ? found->Dump() : "";
}

}  // namespace

House::Visit::Visit(Visit&& other) noexcept
    : house_(std::exchange(other.house_, nullptr)),
      model_(other.model_),
      socket_(std::move(other.socket_)),
      keep_alive_(other.keep_alive_) {}

House::Visit::~Visit() {
  if (house_ != nullptr) house_->Leave(model_, keep_alive_);
}

Result<std::unique_ptr<House>> House::Open(std::vector<HouseModel> models, uint64_t bytes,
                                           double drain_seconds) {
  TRY(std::string folder, MakeSocketFolder());
  std::unique_ptr<House> house(
      new House(std::move(models), bytes, drain_seconds, std::move(folder)));
  TRY_STATUS(house->Begin());
  return house;
}

House::House(std::vector<HouseModel> models, uint64_t bytes, double drain_seconds,
             std::string folder)
    : models_(std::move(models)),
      bytes_(bytes),
      drain_seconds_(drain_seconds),
      folder_(std::move(folder)),
      plan_(bytes),
      entries_(models_.size()),
      workers_(models_.size()) {
  for (const HouseModel& model : models_) plan_.Add(model.keep_alive);
}

// kIo: there are no threads to be had.
Status House::Begin() {
  return Caught(
      [this] {
        measurer_ = std::thread([this] { UntilDone([this] { Measure(); }); });
        watcher_ = std::thread([this] { UntilDone([this] { Watch(); }); });
        return Status();
      },
      [](std::string_view why) -> Status {
        return Fail(Errc::kIo, "cannot start a thread: {}", why);
      });
}

House::~House() {
  Drain();
  AwaitEnd();
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  for (std::thread* thread : {&measurer_, &watcher_}) {
    if (thread->joinable()) thread->join();
  }
  ::rmdir(folder_.c_str());
}

void House::Drain() {
  const std::lock_guard lock(mutex_);
  is_draining_ = true;
  changed_.notify_all();
}

void House::AwaitEnd() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return n_workers_ == 0; });
}

House::Stamps House::StampsOf(size_t model) const {
  Stamps stamps;
  for (const std::string& path : PartsOfSplit(models_[model].path)) {
    const Result<FileStamp> stamp = FileStamp::Of(path);
    stamps.push_back(stamp ? std::optional(*stamp) : std::nullopt);
  }
  return stamps;
}

// Waits until the needs of the model's files, as they are now, are known. What went wrong may have
// been the machine's fault, and a part may be there by now, so that an error does not last.
std::optional<ApiError> House::Measured(size_t model, std::unique_lock<std::mutex>& lock,
                                        const Stamps& stamps,
                                        const std::function<bool()>& is_gone) {
  Entry& entry = entries_[model];
  const bool is_old_error =
      !entry.error.empty() && SteadySeconds() - entry.measured_at > kErrorLasts;
  if (entry.is_measured && (entry.stamps != stamps || is_old_error)) entry.is_measured = false;
  while (!entry.is_measured) {
    entry.is_wanted = true;
    changed_.notify_all();
    changed_.wait_for(lock, kPoll);
    if (is_draining_) return GoingDown();
    if (is_gone()) return Unavailable("the client has left", 499);
  }
  if (!entry.error.empty()) {
    return Unavailable(
        Format("the model {} cannot be served: {}", models_[model].name, entry.error), 500);
  }
  plan_.SetNeeds(model, *entry.needs);
  // While texts run, the next request that finds none has the files read anew.
  if (entry.process_stamps != entry.stamps) plan_.Renew(model);
  return std::nullopt;
}

ApiError House::RefusalOf(size_t model, const BudgetPlan::Verdict& verdict) const {
  const std::string& name = models_[model].name;
  const HouseNeeds needs = *entries_[model].needs;
  switch (verdict.answer) {
    case BudgetPlan::Answer::kTooLarge:
      return Unavailable(Format("the model {} needs {} at least, and --ram leaves {} for models",
                                name, FormatBytes(needs.smallest), FormatBytes(bytes_)),
                         400);
    case BudgetPlan::Answer::kResting:
      return Unavailable(Format("the model {} could not be loaded: {}; tried again in {:.0f} s",
                                name, entries_[model].last_end, verdict.seconds));
    default: {
      std::vector<std::string> names;
      for (const size_t holder : verdict.holders) names.push_back(models_[holder].name);
      return Unavailable(
          Format("there is no room for the model {} ({} at least of {}) while texts of {} run; ask "
                 "again",
                 name, FormatBytes(needs.smallest), FormatBytes(bytes_), Joined(names)));
    }
  }
}

std::expected<House::Visit, ApiError> House::Enter(size_t model,
                                                   const std::function<bool()>& is_gone) {
  // Before the lock: a file's disk may not answer.
  const Stamps stamps = StampsOf(model);
  std::unique_lock lock(mutex_);
  if (is_draining_) return std::unexpected(GoingDown());
  if (auto error = Measured(model, lock, stamps, is_gone))
    return std::unexpected(*std::move(error));
  const BudgetPlan::Verdict verdict = plan_.Ask(model, SteadySeconds());
  if (verdict.answer != BudgetPlan::Answer::kReady && verdict.answer != BudgetPlan::Answer::kSoon) {
    return std::unexpected(RefusalOf(model, verdict));
  }
  // Whoever is ready needs no other thread.
  if (verdict.answer == BudgetPlan::Answer::kSoon) changed_.notify_all();
  // The model has room for this request until it leaves, also without memory to go on.
  try {
    std::expected<std::string, ApiError> socket = AwaitReady(model, lock, is_gone);
    if (socket) return Visit(*this, model, *std::move(socket));
    plan_.Leave(model, SteadySeconds());
    return std::unexpected(std::move(socket).error());
  } catch (...) {
    plan_.Leave(model, SteadySeconds());
    throw;
  }
}

// The socket of the model's process, once that is ready.
std::expected<std::string, ApiError> House::AwaitReady(size_t model,
                                                       std::unique_lock<std::mutex>& lock,
                                                       const std::function<bool()>& is_gone) {
  Entry& entry = entries_[model];
  const uint64_t ends = entry.ends;
  while (plan_.state(model) != HouseState::kReady) {
    if (is_draining_) return std::unexpected(GoingDown());
    if (plan_.state(model) == HouseState::kAbsent && entry.ends != ends) {
      return std::unexpected(Unavailable(
          Format("the model {} could not be loaded: {}", models_[model].name, entry.last_end)));
    }
    if (is_gone()) return std::unexpected(Unavailable("the client has left", 499));
    changed_.wait_for(lock, kPoll);
  }
  ++entry.requests;
  return entry.socket;
}

void House::Leave(size_t model, std::optional<double> keep_alive) {
  const std::lock_guard lock(mutex_);
  plan_.Leave(model, SteadySeconds(), keep_alive);
}

ApiStatus House::Unload(size_t model) {
  const std::lock_guard lock(mutex_);
  if (!plan_.Unload(model)) {
    return std::unexpected(Unavailable(
        Format("texts of the model {} run; ask again when they have ended", models_[model].name),
        409));
  }
  changed_.notify_all();
  return {};
}

ModelReport House::Report(size_t model) {
  const std::lock_guard lock(mutex_);
  const Entry& entry = entries_[model];
  ModelReport report{.name = models_[model].name,
                     .state = plan_.state(model),
                     .bytes = plan_.bytes_of(model),
                     .running = plan_.running(model),
                     .requests = entry.requests,
                     .needs = entry.needs,
                     .error = entry.error,
                     .model = entry.model,
                     .tag = entry.tag,
                     .show = entry.show};
  if (const auto expires = plan_.expires(model)) {
    report.expires_in = std::max(0.0, *expires - SteadySeconds());
  }
  return report;
}

HouseCounts House::counts() {
  const std::lock_guard lock(mutex_);
  return plan_.counts();
}

uint64_t House::held() {
  const std::lock_guard lock(mutex_);
  return plan_.held();
}

void House::AwaitNeeds(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] {
    return is_draining_ || std::ranges::all_of(entries_, &Entry::is_measured);
  });
}

std::optional<size_t> House::LastUsed() {
  const std::lock_guard lock(mutex_);
  std::optional<size_t> last;
  for (size_t model = 0; model < models_.size(); ++model) {
    if (plan_.state(model) != HouseState::kReady) continue;
    if (!last || plan_.last_used(model) > plan_.last_used(*last)) last = model;
  }
  return last;
}

// Wanted models first, then all others in their order.
std::optional<size_t> House::NextToMeasure() const {
  std::optional<size_t> next;
  for (size_t model = 0; model < entries_.size(); ++model) {
    if (entries_[model].is_measured) continue;
    if (entries_[model].is_wanted) return model;
    if (!next) next = model;
  }
  return next;
}

void House::Measure() {
  for (;;) {
    std::optional<size_t> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        next = NextToMeasure();
        return is_draining_ || is_over_ || next;
      });
      if (is_draining_ || is_over_) return;
    }
    MeasureOne(*next);
  }
}

// A process of its own reads the file, so that a broken one ends no server.
void House::MeasureOne(size_t model) {
  Entry found;
  found.stamps = StampsOf(model);
  std::vector<std::string> arguments = models_[model].arguments;
  arguments.emplace_back("--show-needs");
  const std::string name = Printable(models_[model].name, 200);
  auto process = ModelProcess::Start(arguments, name);
  if (process) {
    const double end = SteadySeconds() + kMeasureSeconds;
    while (!(*process)->HasEnded()) {
      std::this_thread::sleep_for(2ms);
      const std::lock_guard lock(mutex_);
      if (is_draining_) return;
      if (SteadySeconds() > end) (*process)->Tell(SIGKILL);
    }
    const Result<Json> json = Json::Parse((*process)->Output());
    if (json && NumberIn(*json, "smallest") > 0) {
      const uint64_t smallest = NumberIn(*json, "smallest");
      const uint64_t most = models_[model].most;
      if (most < smallest) {
        found.error = Format("its own limit of {} is below the {} that it needs at least",
                             FormatBytes(most), FormatBytes(smallest));
      }
      const uint64_t best = std::min(NumberIn(*json, "best"), most);
      found.needs = {.smallest = smallest, .best = std::max(smallest, best)};
      found.model = PartOf(*json, "model");
      found.tag = PartOf(*json, "tag");
      found.show = PartOf(*json, "show");
    } else {
      found.error = (*process)->LastLine();
      if (found.error.empty()) found.error = "its reader ended with " + (*process)->EndText();
    }
  } else {
    found.error = process.error().message;
  }
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[model];
  entry.stamps = std::move(found.stamps);
  entry.measured_at = SteadySeconds();
  entry.needs = found.needs;
  entry.error = std::move(found.error);
  entry.model = std::move(found.model);
  entry.tag = std::move(found.tag);
  entry.show = std::move(found.show);
  entry.is_measured = true;
  entry.is_wanted = false;
  changed_.notify_all();
}

// A folder of this user's session goes when the session ends, with the sockets in the folder.
Status House::FindFolder() {
  if (::access(folder_.c_str(), F_OK) == 0) return {};
  TRY(folder_, MakeSocketFolder());
  return {};
}

void House::Start(size_t model, uint64_t bytes) {
  const Status has_folder = FindFolder();
  Stamps stamps = StampsOf(model);
  Worker& worker = workers_[model];
  worker = {.socket = Format("{}/{}", folder_, ++starts_), .began = SteadySeconds()};
  worker.answered = worker.began;
  std::vector<std::string> arguments = models_[model].arguments;
  arguments.push_back(Format("--ram={}", bytes));
  arguments.push_back(Format("--host={}{}", kUnixHost, worker.socket));
  auto process = has_folder ? ModelProcess::Start(arguments, Printable(models_[model].name, 200))
                            : std::unexpected(has_folder.error());
  const std::lock_guard lock(mutex_);
  entries_[model].process_stamps = std::move(stamps);
  if (!process) {
    entries_[model].last_end = process.error().message;
    ++entries_[model].ends;
    plan_.Ended(model, SteadySeconds());
    changed_.notify_all();
    return;
  }
  worker.process = *std::move(process);
  ++n_workers_;
}

void House::End(size_t model, double now) {
  Worker& worker = workers_[model];
  if (!worker.process || worker.ends_at) return;
  // A service manager may send SIGTERM to all processes, and a second SIGTERM would cut texts off.
  worker.process->Tell(SIGHUP);
  worker.ends_at = now + drain_seconds_ + kEndSeconds;
}

// Reaps the process, or checks its health.
void House::WatchOne(size_t model, double now) {
  Worker& worker = workers_[model];
  if (!worker.process) return;
  if (!worker.process->HasEnded()) {
    LookAfter(model, now);
    return;
  }
  const bool was_told = worker.ends_at.has_value();
  std::string why = worker.process->EndText();
  const std::string said = worker.process->LastLine();
  if (!said.empty() && !worker.process->was_killed()) why = Format("{} ({})", said, why);
  worker.process.reset();
  ::unlink(worker.socket.c_str());
  if (!was_told) {
    LogWarning("the process of the model {} has ended: {}", Printable(models_[model].name, 200),
               why);
  }
  const std::lock_guard lock(mutex_);
  if (!was_told) {
    entries_[model].last_end = why;
    ++entries_[model].ends;
  }
  entries_[model].socket.clear();
  plan_.Ended(model, now);
  --n_workers_;
  changed_.notify_all();
}

void House::LookAfter(size_t model, double now) {
  Worker& worker = workers_[model];
  if (worker.ends_at) {
    if (now > *worker.ends_at) worker.process->Tell(SIGKILL);
    return;
  }
  bool is_ready = false;
  {
    const std::lock_guard lock(mutex_);
    is_ready = plan_.state(model) == HouseState::kReady;
  }
  if (now - worker.looked < (is_ready ? kStoppedEvery : 0.02)) return;
  worker.looked = now;
  // One look could see a job that a terminal stops and continues together with this process.
  const bool is_stopped = worker.process->IsStopped();
  if (is_stopped && std::exchange(worker.was_stopped, is_stopped)) {
    LogWarning("the process of the model {} was stopped; it is ended",
               Printable(models_[model].name, 200));
    worker.process->Tell(SIGKILL);
    return;
  }
  worker.was_stopped = is_stopped;
  if (is_stopped || (is_ready && now - worker.answered < kHealthEvery)) return;
  const Status health = CheckHealth(std::string(kUnixHost) + worker.socket, 0, kHealthSeconds);
  // An answer that the server is not ready is one, too.
  const bool answers = health || health.error().code == Errc::kInvalidRequest;
  if (answers) worker.answered = now;
  if (health && !is_ready) {
    const std::lock_guard lock(mutex_);
    entries_[model].socket = worker.socket;
    plan_.Ready(model, now);
    changed_.notify_all();
  }
  const bool is_silent = now - worker.answered > kSilence;
  if ((is_ready && is_silent) || (!is_ready && now - worker.began > kMostLoading)) {
    LogWarning("the process of the model {} does not answer; it is ended",
               Printable(models_[model].name, 200));
    worker.process->Tell(SIGKILL);
  }
}

void House::Carry(const BudgetPlan::Order& order, double now) {
  if (order.kind == BudgetPlan::Order::Kind::kEnd) return End(order.model, now);
  Caught([&] { Start(order.model, order.bytes); },
         [&](std::string_view why) {
           const std::lock_guard lock(mutex_);
           if (workers_[order.model].process) return;
           ++entries_[order.model].ends;
           plan_.Ended(order.model, SteadySeconds());
           changed_.notify_all();
           entries_[order.model].last_end = why;
         });
}

void House::Watch() {
  for (;;) {
    const double now = SteadySeconds();
    for (size_t model = 0; model < workers_.size(); ++model) WatchOne(model, now);
    std::unique_lock lock(mutex_);
    if (is_over_) return;
    const std::optional<BudgetPlan::Order> order = is_draining_ ? std::nullopt : plan_.Next(now);
    const bool is_busy = std::ranges::any_of(models_, [&](const HouseModel& model) {
      const HouseState state = plan_.state(static_cast<size_t>(&model - models_.data()));
      return state != HouseState::kAbsent && state != HouseState::kReady;
    });
    const bool is_draining = is_draining_;
    if (!order) changed_.wait_for(lock, is_busy || is_draining ? kBusyLook : kQuietLook);
    lock.unlock();
    if (order) Carry(*order, now);
    for (size_t model = 0; is_draining && model < workers_.size(); ++model) End(model, now);
  }
}

}  // namespace moestro
