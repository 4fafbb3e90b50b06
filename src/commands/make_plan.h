// SPDX-License-Identifier: MIT
// Plans a model: reads its directory, here or elsewhere, and predicts its speeds on a machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "commands/plan_report.h"
#include "core/machine.h"
#include "engine/engine_options.h"
#include "hub/choose_file.h"
#include "hub/hub_settings.h"
#include "learned/machine_files.h"
#include "load/open_engine.h"
#include "model/byte_source.h"
#include "native/machine_probe.h"
#include "speed/planned_model.h"
#include "speed/remote_price.h"

namespace moestro {

// The speeds of the machine that a plan is for: read from a file, kept from an earlier start, or
// measured.

struct MachineWish {
  std::string file = {};        // a machine's speeds; empty: this machine's
  bool measures_again = false;  // kept speeds are ignored
  uint32_t threads = 0;         // 0: physical cores
  ProbedDisk disk = {};
  std::string kept_in = {};  // folder; empty: nothing is kept
};

struct MachineSpeeds {
  MachineRates rates = {};
  std::string from = {};  // for people: "measured now"
};

// Finds speeds with the rates of every type that a model needs; if kept rates lack some types, only
// those are measured.
// Errors: those of ReadRates() and MeasureMachine(); kInvalidRequest, naming the type: one that the
// file lacks or this processor does not multiply.
Result<MachineSpeeds> FindSpeeds(const MachineWish& wish, const ModelNeeds& needs);

// The model that a plan is about: a file on this machine, or a remote one of which only the
// directory is fetched.

// Sparse copies of a remote model's files, each with the file's directory and length, so that code
// which reads no weights can open the model as if it were on this machine. The destructor removes
// the folder.
class DirectoryCopies {
 public:
  // Makes a folder in the system's folder for temporary files. kIo.
  static Result<std::shared_ptr<DirectoryCopies>> Create();
  ~DirectoryCopies();
  DirectoryCopies(const DirectoryCopies&) = delete;
  DirectoryCopies& operator=(const DirectoryCopies&) = delete;

  // Wraps `open` so that the bytes that are read are copied, too. Errors of the result: those of
  // `open`, and kIo. The copies must outlive the result.
  OpenBytes CopyWhat(OpenBytes open);
  const std::string& first() const { return first_; }  // path of the first opened file

 private:
  explicit DirectoryCopies(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
  std::string first_;
};

struct PlanSubject {
  ModelToLoad model;
  std::string file = {};  // path of the model's first file; empty: not on this machine
  std::shared_ptr<DirectoryCopies> copies = {};  // of a model elsewhere
  // Folder of the model, or where it would go; perhaps a folder to be made.
  std::string folder = {};
  uint64_t to_fetch = 0;  // bytes; 0: the model is on this machine
  // Free bytes of the folder's disk; nullopt: the model is on this machine.
  std::optional<uint64_t> free_bytes = {};
  std::vector<HubModel> choices = {};  // all models of the repository, the best first
  std::string label = {};              // label of the subject
};

// `text`: a model's name as users type it (hub/model_name.h). `engine`: see ModelToLoad::Open().
// Errors of ParseModelName(), ModelToLoad::Open(), HubClient and ChooseModel(); kIo also if the
// model is not on this machine and no request may leave it.
Result<PlanSubject> FindSubject(const std::string& text, const std::string& engine,
                                const HubSettings& settings, StopSignal& stop);

struct PlanWish {
  std::string model = {};  // file, name or address
  HubSettings settings = {};
  EngineOptions engine = {};    // its budget, context, type of keys and values, and threads count
  std::string machine = {};     // a file of a machine's speeds; empty: this machine's
  bool has_choices = true;      // the repository's other files, too
  StopSignal* stop = nullptr;   // of requests; null: an interrupt ends the process
  bool measures_again = false;  // this machine's speeds are measured again
  Network network = {};         // to the hosts of engine.device.remote
};

// Takes the compute threads for two seconds unless this machine's speeds are kept, and for two more
// with a device of this machine: no engine is open. Errors of FindSubject(), PlannedModel::Of(),
// FindSpeeds() and SpeedPredictor.
Result<PlanReport> MakePlan(const PlanWish& wish);

// Keeps the predicted speeds, which later runs of the model compare with their own.
void KeepForRuns(const PlanReport& report);

}  // namespace moestro
