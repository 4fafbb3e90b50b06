// SPDX-License-Identifier: MIT
// The speeds of the machine that a plan is for: read from a file, kept from an earlier start, or
// measured.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "core/machine_rates.h"
#include "native/machine_probe.h"
#include "speed/model_needs.h"

namespace moestro {

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

}  // namespace moestro
