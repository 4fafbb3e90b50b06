// SPDX-License-Identifier: MIT
// What launches of experts on a device have in common. Used by device_experts*.cc alone.
#pragma once

#include <ggml.h>

#include <array>
#include <exception>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "device/devices.h"
#include "device/graph_arena.h"

namespace moestro {

// ggml reports what a device refuses by an exception where the driver does.
template <class Work>
Status OnDevice(const char* what, Work&& work) {
  try {
    work();
    return {};
  } catch (const std::exception& e) {
    return Fail(Errc::kDevice, "{} failed: {}", what, e.what());
  }
}

// down * activation(gate * x, up * x): [n_embd] for each pair. x: [n_embd, 1, P], or [n_embd, 1, 1]
// for one row; ids: [1, P], or [P, 1] for one row, whose experts differ: no slot comes twice within
// one of ggml's rows. `matrix`: of the pool.
ggml_tensor* AddProducts(ggml_context* context, ggml_cgraph* graph,
                         const std::array<ggml_tensor*, kMatrices>& matrix, Activation activation,
                         ggml_tensor* x, ggml_tensor* ids);

// kDevice: no room.
Status PlaceOn(const ComputeDevice& device, GraphArena& arena);

}  // namespace moestro
