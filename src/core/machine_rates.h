// SPDX-License-Identifier: MIT
// Speeds of a machine's parts, measured without a model. Predictions of a model's speed are made
// from them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

// Speed of multiplying weights of one tensor type on all compute threads.
struct KernelRate {
  std::string type = {};  // ggml's name: "q4_K"
  double decode = 0.0;    // bytes of weights per second, one row, out of memory
  double prompt = 0.0;    // multiplications of a weight per second, many rows

  bool operator==(const KernelRate&) const = default;
};

struct MachineRates {
  std::string cpu = {};   // the processor's name
  uint32_t threads = 0;   // compute threads
  uint64_t memory = 0;    // bytes that this process may take
  double disk = 0.0;      // bytes per second of direct reads, `io_depth` at a time
  uint32_t io_depth = 4;  // reads at a time
  double barrier = 0.0;   // seconds in which all compute threads get work and have done it
  std::vector<KernelRate> kernels = {};

  // nullptr: the type was not measured.
  const KernelRate* Find(std::string_view type) const {
    for (const KernelRate& rate : kernels) {
      if (rate.type == type) return &rate;
    }
    return nullptr;
  }
  bool operator==(const MachineRates&) const = default;
};

}  // namespace moestro
