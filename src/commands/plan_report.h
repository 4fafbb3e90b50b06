// SPDX-License-Identifier: MIT
// Reports of `moestro plan`, and its promise beside the speed of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "core/machine.h"
#include "engine/engine.h"
#include "engine/run_report.h"
#include "learned/kept_facts.h"
#include "learned/machine_files.h"
#include "native/plan/fit.h"
#include "speed/device_price.h"
#include "speed/planned_model.h"
#include "speed/predict_speed.h"
#include "speed/remote_price.h"

namespace moestro {

// Another file of the same repository, with speeds scaled from those of the planned file.
struct PlannedChoice {
  std::string label = {};  // "Q4_K_M"
  uint64_t bytes = 0;
  bool is_planned = false;                // the file that the rest of the plan is about
  std::optional<SpeedRange> decode = {};  // in the recommended budget; nullopt: it does not fit
};

// Source of the routing that predictions assume for the model.
enum class RoutingSource : uint8_t {
  kRange,   // routing is not known: a range from even to recorded routing
  kFamily,  // routing recorded for the model's family
  kRun,     // as observed in the model's last run here
};

// Effect of remote hosts in the chosen budget.
struct PlannedHosts {
  std::string names = {};  // "box:50052, box2:50052"
  uint64_t bytes = 0;      // of all
  Network network = {};
  std::string refusal = {};  // why they cannot compute the model's experts; empty: they can
  RemotePrice price = {};
};

// Effect of the machine's first device in the chosen budget.
struct PlannedDevice {
  std::string name = {};
  uint64_t vram = 0;         // bytes that a run may use
  std::string refusal = {};  // why it cannot compute the model's experts; empty: it can
  DevicePrice even = {};     // by even routing, and by recorded routing
  DevicePrice recorded = {};
};

struct PlanReport {
  std::string model = {};                   // as the user gave it
  std::string folder = {};                  // where the model is, or would be put
  uint64_t to_fetch = 0;                    // bytes; 0: the model is on this machine
  std::optional<uint64_t> free_bytes = {};  // of the disk of `folder`
  uint64_t fingerprint = 0;
  PlannedModel planned = {};
  MachineRates machine = {};
  LatencyFile devices = {};   // the machine's devices
  std::string measured = {};  // where the machine's speeds are from
  RoutingSource routing = RoutingSource::kRange;
  std::vector<BudgetSpeed> speeds = {};  // rising budgets
  // The budget of --ram, or the recommended one; nullopt: none fits.
  std::optional<BudgetSpeed> chosen = {};
  bool is_recommended = false;               // `chosen` is not --ram's budget
  std::vector<PlannedChoice> choices = {};   // the best first; empty: the repository has one file
  std::optional<PlannedHosts> hosts = {};    // nullopt: none are named, or the model does not fit
  std::optional<PlannedDevice> device = {};  // nullopt: none, or the model does not fit
};

// A size that --ram takes, never less than `bytes`: sizes that a rounded text would make smaller
// are whole MiB.
std::string RamText(uint64_t bytes);
std::string PlanText(const PlanReport& report);
// "fits from 3.1 GiB on; in 8.0 GiB with 43 % of its experts in memory 3.0 to 6.0 tok/s are
// expected, and 40.1 of a prompt", or why it does not fit; behind the name of a model.
std::string PlanLine(const PlanReport& report);
Json PlanAsJson(const PlanReport& report);
Json FitAsJson(const Fit& fit);

// Speed that `moestro plan` predicted, beside the speed of the run.

// nullopt: nothing was predicted for the engine's model, threads and share of experts, or too few
// tokens were decoded, or the run is of a kind that plans do not cover: several rows in a step, a
// device, fewer experts than the router chose.
std::optional<PlannedSpeed> FindPlanned(const std::string& folder, const Engine& engine,
                                        const RunReport& report);
// Keeps the share of requests that memory lacked, for later plans of the model, if plans cover the
// kind of run and at most 60 % of the experts were in memory.
void KeepCachingSeen(const std::string& folder, const Engine& engine, const RunReport& report);
// The line about the prediction, with its newline.
std::string PlannedText(const PlannedSpeed& planned, const RunReport& report);
// "planned_low_tps" and "planned_high_tps".
void AddPlanned(Json& object, const PlannedSpeed& planned);

}  // namespace moestro
