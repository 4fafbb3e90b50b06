// SPDX-License-Identifier: MIT
// Work in a child, watched by its parent, which passes on what the child says and knows how it
// ended. For a process that ChildStarter has begun.
#pragma once

#include <functional>

#include "sandbox/message_socket.h"
#include "sandbox/trial.h"

namespace moestro {

struct RelayEnd {
  Trial::Outcome outcome = Trial::Outcome::kNotRun;
  int exit_code = 0;               // kRefused: what the child exited with
  double processor_seconds = 0.0;  // that the child has used
};

// `work` in a child, which writes whole messages; they go on to `owner`. The child is ended when
// the owner has gone. Its limits are its own to set.
RelayEnd RelayChild(MessageSocket& owner, const std::function<void(MessageSocket)>& work);

}  // namespace moestro
