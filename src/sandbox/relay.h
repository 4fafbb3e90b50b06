// SPDX-License-Identifier: MIT
// Work in a child, watched by its parent, which passes on the child's messages and reports the
// child's end. For a process that ChildStarter has begun.
#pragma once

#include <functional>

#include "sandbox/message_socket.h"
#include "sandbox/trial.h"

namespace moestro {

struct RelayEnd {
  Trial::Outcome outcome = Trial::Outcome::kNotRun;
  int exit_code = 0;               // for kRefused: the child's exit code
  double processor_seconds = 0.0;  // used by the child
};

// Runs `work` in a child, which writes whole messages; these go on to `owner`. The child is ended
// when the owner has gone. `work` sets the child's limits.
RelayEnd RelayChild(MessageSocket& owner, const std::function<void(MessageSocket)>& work);

}  // namespace moestro
