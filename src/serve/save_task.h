// SPDX-License-Identifier: MIT
// A client's request about the text that was computed at a place. A task that has begun is
// completed even if its client has gone.
//
// Thread rule: that of EngineTask; the values do not change.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "api/server_bodies.h"
#include "serve/engine_task.h"

namespace moestro {

class SaveTask : public EngineTask<SaveFigures> {
 public:
  // `file`: a plain name; empty for erasing.
  SaveTask(SaveAction action, uint32_t place, std::string file)
      : action_(action), place_(place), file_(std::move(file)) {}

  SaveAction action() const { return action_; }
  uint32_t place() const { return place_; }
  const std::string& file() const { return file_; }

 private:
  const SaveAction action_;
  const uint32_t place_;
  const std::string file_;
};

}  // namespace moestro
