// SPDX-License-Identifier: MIT
// ggml's CPU backend and its team of threads.
//
// Thread rule: everything is called from one host thread. ggml's OpenMP team belongs to the thread
// that computes, a second caller would start a second spinning team on the same cores.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/cpu_traits.h"

namespace moestro {

class CpuDevice {
 public:
  // threads: of the team, including the caller's; 0: the physical cores this process may use.
  // kUsage for more threads than ggml takes, kUnsupported when it finds no CPU backend to load.
  static Result<CpuDevice> Open(uint32_t threads);

  uint32_t threads() const { return threads_; }
  ggml_backend_t backend() const { return backend_.get(); }
  const CpuTraits& traits() const { return traits_; }
  ggml_backend_dev_t handle() const { return ggml_backend_get_device(backend_.get()); }
  std::string description() const;  // "AMD EPYC ..., 2 threads"

  // Runs an allocated graph to its end.
  Status Compute(ggml_cgraph* graph);

  // Buffer types that store matrices in another layout and multiply them faster; may be empty.
  std::vector<ggml_backend_buffer_type_t> repacking_buffer_types() const;
  // True if ggml multiplies a [n_in, n_out] matrix of `type` stored in `buffer_type` by F32.
  bool CanMultiply(ggml_type type, int64_t n_in, int64_t n_out,
                   ggml_backend_buffer_type_t buffer_type) const;

 private:
  CpuDevice(ggml_backend_ptr backend, CpuTraits traits, uint32_t threads)
      : backend_(std::move(backend)), traits_(traits), threads_(threads) {}

  ggml_backend_ptr backend_;
  CpuTraits traits_;
  uint32_t threads_ = 1;
};

// Cores, not hyper-threads, within this process's affinity mask and processor quota. `root`: see
// base/system_limits.h.
uint32_t PhysicalCores(const std::string& root = "");

}  // namespace moestro
