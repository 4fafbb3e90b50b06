// SPDX-License-Identifier: MIT
// Checks that a device computes a graph, and that a layer has left finite numbers in the
// StepBuffers.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>

#include "base/result.h"
#include "core/ids.h"
#include "core/kv_type.h"
#include "core/model_spec.h"
#include "device/devices.h"
#include "devices/step_buffers.h"

namespace moestro {

// Checks the logits of a layer with a router, else the layer's result. The result of a layer
// without experts on a device is checked with the next router. kInvalidFile: some number is NaN or
// infinite; the message names the position and the layer.
Status CheckLayer(const ModelSpec& spec, const StepBuffers& buffers, LayerId layer, size_t n_rows);

// Checks that the device computes every node; null: the CPU, which does. `type`: the type of keys
// and values. kDevice, naming the node.
Status CheckComputes(const ComputeDevice* device, ggml_cgraph* graph, KvType type);

}  // namespace moestro
