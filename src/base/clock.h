// SPDX-License-Identifier: MIT
// Code that measures time takes a Clock, so that tests can stop it.
#pragma once

#include <chrono>
#include <functional>

namespace moestro {

// Seconds since some moment.
using Clock = std::function<double()>;

inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace moestro
