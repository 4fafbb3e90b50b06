// SPDX-License-Identifier: MIT
// The model that a plan is about: a file here, or one elsewhere of which only the directory is
// fetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/stop_signal.h"
#include "hub/choose_file.h"
#include "hub/hub_settings.h"
#include "load/model_to_load.h"
#include "model/byte_source.h"

namespace moestro {

// Files of holes with the directories of a model's files elsewhere, each as long as the file, so
// that what reads no weight can open the model as if it were here. The folder goes with this.
class DirectoryCopies {
 public:
  // In the system's folder for temporary files. kIo.
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
  std::string file = {};  // the model's first file here; empty: it is not here
  std::shared_ptr<DirectoryCopies> copies = {};  // of a model elsewhere
  std::string folder = {};  // where it is, or would be; this may be a folder to be made
  uint64_t to_fetch = 0;    // bytes; 0: it is here
  std::optional<uint64_t> free_bytes = {};  // of the folder's disk; nullopt: it is here
  std::vector<HubModel> choices = {};       // all models of the repository, the best first
  std::string label = {};                   // of the one that is meant
};

// `text`: what people type for a model (hub/model_name.h). `engine`: as ModelToLoad::Open() has it.
// Errors of ParseModelName(), ModelToLoad::Open(), HubClient and ChooseModel(); kIo, too: it is not
// here, and no request may leave this machine.
Result<PlanSubject> FindSubject(const std::string& text, const std::string& engine,
                                const HubSettings& settings, StopSignal& stop);

}  // namespace moestro
