// SPDX-License-Identifier: MIT
// Several models, a process for each that is loaded, and one budget for all. BudgetPlan decides;
// this class measures needs, starts, watches and ends processes, and lets requests in.
//
// A process that dies, that is stopped, or that answers /health for kSilence no more is ended and
// started again; only the requests that it had are lost. A model whose file has changed is read
// anew before its next request.
//
// Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/api_error.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/result.h"
#include "house/budget_plan.h"
#include "house/model_list.h"
#include "house/model_process.h"

namespace moestro {

// A model as clients and reports see it.
struct ModelReport {
  std::string name;
  HouseState state = HouseState::kAbsent;
  uint64_t bytes = 0;  // of its process; 0: none
  uint32_t running = 0;
  uint64_t requests = 0;                  // let in so far
  std::optional<HouseNeeds> needs = {};   // nullopt: not measured yet, or the file is none
  std::string error = {};                 // why the model cannot be served; empty: it can
  std::optional<double> expires_in = {};  // seconds; nullopt: it stays
  // NeedsJson()'s parts, as JSON; empty: not known.
  std::string model = {};
  std::string tag = {};
  std::string show = {};
};

class House {
 public:
  // Seconds for which a process may be silent.
  static constexpr double kSilence = 20.0;
  static constexpr double kMostLoading = 1800.0;

  // A request that a model's process may now compute; until it is destroyed the process stays.
  class Visit {
   public:
    Visit(House& house, size_t model, std::string socket)
        : house_(&house), model_(model), socket_(std::move(socket)) {}
    Visit(Visit&& other) noexcept;
    Visit& operator=(Visit&&) = delete;
    ~Visit();
    const std::string& socket() const { return socket_; }  // path
    // Seconds that the model stays after this request; negative: for ever.
    void set_keep_alive(std::optional<double> seconds) { keep_alive_ = seconds; }

   private:
    House* house_;  // null: moved from
    size_t model_;
    std::string socket_;
    std::optional<double> keep_alive_;
  };

  // Begins to measure what the models need. `bytes`: for all processes of models together.
  // drain_seconds: what a process takes at most to end. kIo: no folder for the sockets, no threads.
  static Result<std::unique_ptr<House>> Open(std::vector<HouseModel> models, uint64_t bytes,
                                             double drain_seconds);
  // Ends all processes. REQUIRES: no Visit lives.
  ~House();
  House(const House&) = delete;
  House& operator=(const House&) = delete;

  const std::vector<HouseModel>& models() const { return models_; }
  // Waits until the model is ready, its loading included. 503: no room (with the names of the
  // models in the way), the process has died, the house ends; 500: the file cannot be served; 400:
  // the budget is too small for the model; 499: the client has left.
  std::expected<Visit, ApiError> Enter(size_t model, const std::function<bool()>& is_gone);
  // 409: texts run.
  ApiStatus Unload(size_t model);

  ModelReport Report(size_t model);
  HouseCounts counts();
  uint64_t bytes() const { return bytes_; }
  uint64_t held();  // bytes of all processes
  // Lists' cards wait for the first measurement of all models, for at most so long.
  void AwaitNeeds(double seconds);
  // The model that was used last among those that are loaded; nullopt: none is.
  std::optional<size_t> LastUsed();

  // Lets nobody in any more and ends all processes.
  void Drain();
  // Waits until they have ended.
  void AwaitEnd();

 private:
  // A model's files in turn; nullopt: no file has that name now.
  using Stamps = std::vector<std::optional<FileStamp>>;
  struct Entry {
    Stamps stamps = {};          // of the files that were measured
    bool is_measured = false;    // needs or error are of `stamps`
    double measured_at = 0.0;    // seconds
    bool is_wanted = false;      // a request waits for the measurement
    Stamps process_stamps = {};  // when the model's process started
    std::optional<HouseNeeds> needs = {};
    std::string error = {};
    std::string model = {};
    std::string tag = {};
    std::string show = {};
    uint64_t requests = 0;
    std::string socket = {};    // of the process; empty: none
    std::string last_end = {};  // why the last process ended unasked
    uint64_t ends = 0;          // unasked
  };
  // A process; the watcher's alone.
  struct Worker {
    std::unique_ptr<ModelProcess> process = {};
    std::string socket = {};
    double began = 0.0;
    double answered = 0.0;               // last answer of /health
    double looked = 0.0;                 // last look
    std::optional<double> ends_at = {};  // when it is ended by force; nullopt: it was not told to
    bool was_stopped = false;            // at the last look
  };

  House(std::vector<HouseModel> models, uint64_t bytes, double drain_seconds, std::string folder);
  Status Begin();
  void Watch();
  void WatchOne(size_t model, double now);
  void LookAfter(size_t model, double now);
  void Start(size_t model, uint64_t bytes);
  void End(size_t model, double now);
  void Carry(const BudgetPlan::Order& order, double now);
  void Measure();
  void MeasureOne(size_t model);
  std::optional<size_t> NextToMeasure() const;
  Stamps StampsOf(size_t model) const;
  std::optional<ApiError> Measured(size_t model, std::unique_lock<std::mutex>& lock,
                                   const Stamps& stamps, const std::function<bool()>& is_gone);
  std::expected<std::string, ApiError> AwaitReady(size_t model, std::unique_lock<std::mutex>& lock,
                                                  const std::function<bool()>& is_gone);
  Status FindFolder();
  ApiError RefusalOf(size_t model, const BudgetPlan::Verdict& verdict) const;
  void Leave(size_t model, std::optional<double> keep_alive);

  const std::vector<HouseModel> models_;
  const uint64_t bytes_;
  const double drain_seconds_;
  std::string folder_;  // of the sockets
  std::mutex mutex_;
  std::condition_variable changed_;
  BudgetPlan plan_;
  std::vector<Entry> entries_;
  bool is_draining_ = false;
  bool is_over_ = false;
  size_t n_workers_ = 0;  // processes that run
  std::vector<Worker> workers_;
  uint64_t starts_ = 0;
  std::thread measurer_;  // the threads are the last members: they use the others
  std::thread watcher_;
};

}  // namespace moestro
