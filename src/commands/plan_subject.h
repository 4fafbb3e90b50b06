// SPDX-License-Identifier: MIT
// The model that a plan is about: a file on this machine, or a remote one of which only the
// directory is fetched.
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

}  // namespace moestro
