// SPDX-License-Identifier: MIT
// Which models of a house are in memory, and with how many bytes each: one budget for all of them.
//
// A model is loaded for the first request to it. It gets the bytes that suit it best, or those that
// are left. Where too few are left, models without a running text give way, the one that rested
// longest first: each shrinks to its smallest, and ends where that is not enough. A model whose
// texts run keeps its bytes. A model with little that rests is started again with more once there
// is room.
//
// A model's bytes count until its process has ended, so the sum of all never exceeds the budget, at
// no moment. Times are the caller's seconds. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"

namespace moestro {

// Bytes of a process that serves a model.
struct HouseNeeds {
  uint64_t smallest = 0;  // fewer do not work
  uint64_t best = 0;      // more are of no use; at least `smallest`
};

enum class HouseState : uint8_t {
  kAbsent,
  kWaiting,   // its bytes are promised, and others' processes have to end first
  kStarting,  // its process reads the model
  kReady,
  kEnding,
};

struct HouseCounts {
  uint64_t loads = 0;     // processes started, those of shrunk models among them
  uint64_t shrinks = 0;   // to the smallest, for others
  uint64_t growths = 0;   // into free room
  uint64_t ends = 0;      // for others, by keep-alive, or as asked
  uint64_t deaths = 0;    // processes that ended by themselves
  uint64_t refusals = 0;  // requests for which there was no room
};

class BudgetPlan {
 public:
  using Model = size_t;
  static constexpr double kForEver = -1.0;
  // A process that lived so long was sound: its death is followed by a start at once.
  static constexpr double kSoundSeconds = 10.0;
  // A model that rests so long may be started again with more.
  static constexpr double kGrowAfter = 30.0;
  // A request waits so long for a process that rests after it was ready.
  static constexpr double kPatience = 5.0;
  static constexpr double kMostRest = 30.0;  // seconds between two tries

  enum class Answer : uint8_t {
    kReady,
    kSoon,      // the model's process starts, or will
    kFull,      // others' running texts need the memory
    kTooLarge,  // the whole budget is less than the model's smallest
    kResting,   // its process has died at its start; the next try comes later
  };
  struct Verdict {
    Answer answer = Answer::kSoon;
    std::vector<Model> holders = {};  // kFull: the models in the way
    double seconds = 0.0;             // kResting: until the next try
  };
  struct Order {
    enum class Kind : uint8_t { kStart, kEnd };
    Kind kind = Kind::kStart;
    Model model = 0;
    uint64_t bytes = 0;  // kStart
  };

  explicit BudgetPlan(uint64_t bytes) : bytes_(bytes) {}

  // keep_alive: seconds without a text after which the model ends; negative: never.
  Model Add(double keep_alive);
  // REQUIRES: needs.smallest <= needs.best. Counts from the model's next start on.
  void SetNeeds(Model model, HouseNeeds needs) { models_[model].needs = needs; }

  // A request comes. After kReady and kSoon it runs until Leave(). REQUIRES: SetNeeds().
  Verdict Ask(Model model, double now);
  // keep_alive: for this time and until the next request; nullopt: as it was.
  void Leave(Model model, double now, std::optional<double> keep_alive = std::nullopt);
  // Ends a model without running texts. False: texts run.
  bool Unload(Model model);
  // Ends a model's process and starts it again with the same bytes, as after a change of its file.
  // False: texts run, or it is not ready.
  bool Renew(Model model);

  // The next order that can be carried out now; counts as carried out. nullopt: none.
  std::optional<Order> Next(double now);
  void Ready(Model model, double now);
  // The process has ended, ordered or not.
  void Ended(Model model, double now);

  uint64_t held() const;  // bytes of all processes, those that end among them
  HouseState state(Model model) const { return models_[model].state; }
  uint64_t bytes_of(Model model) const { return models_[model].bytes; }
  uint32_t running(Model model) const { return models_[model].running; }
  // When the last text began or ended; negative: none has.
  double last_used(Model model) const { return models_[model].last_used; }
  // When keep-alive ends the model; nullopt: not loaded, texts run, or never.
  std::optional<double> expires(Model model) const;
  const HouseCounts& counts() const { return counts_; }

 private:
  struct Entry {
    HouseNeeds needs = {};
    HouseState state = HouseState::kAbsent;
    uint64_t bytes = 0;   // kWaiting: promised; else of the process
    uint64_t next = 0;    // kEnding: bytes to start again with; 0: it ends
    bool is_due = false;  // kEnding: the order has still to be given
    uint32_t running = 0;
    double last_used = -1.0;
    double keep_alive = kForEver;
    double usual_keep_alive = kForEver;
    double began = 0.0;       // the process was ready
    double not_before = 0.0;  // of the next start
    uint32_t failures = 0;    // in a row
  };

  uint64_t Promised(const Entry& entry) const;
  std::vector<Model> Resting() const;
  bool MakeRoom(Model model);
  uint64_t Gain(const Entry& entry) const;
  void Grow(double now);
  void End(Entry& entry, uint64_t next);
  void Fail(Entry& entry, double now);

  const uint64_t bytes_;
  std::vector<Entry> models_;
  HouseCounts counts_;
};

}  // namespace moestro
