// SPDX-License-Identifier: MIT
// The speeds of the machine that a plan is for: of a file, kept from an earlier start, or measured.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "core/machine_rates.h"
#include "native/machine_probe.h"
#include "offline/speed/model_needs.h"

namespace moestro {

struct MachineWish {
  std::string file = {};        // a machine's speeds; empty: this machine's
  bool measures_again = false;  // whatever is kept
  uint32_t threads = 0;         // 0: physical cores
  ProbedDisk disk = {};
  std::string kept_in = {};  // folder; empty: nothing is kept
};

struct MachineSpeeds {
  MachineRates rates = {};
  std::string from = {};  // for people: "measured now"
};

// With the rates of every type that a model needs; of what is kept only missing types are measured.
// Errors: those of ReadRates() and MeasureMachine(); kInvalidRequest, naming it: a type that the
// file lacks or this processor does not multiply.
Result<MachineSpeeds> FindSpeeds(const MachineWish& wish, const ModelNeeds& needs);

}  // namespace moestro
