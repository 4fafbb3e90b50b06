// SPDX-License-Identifier: MIT
// Whether a device computes a graph, and whether what a layer has left in the StepBuffers are
// numbers.
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
#include "forward/dense/step_buffers.h"

namespace moestro {

// Of a layer with a router the logits are looked at, else the result. What a layer without experts
// leaves on a device is left to the next router. kInvalidFile: some are NaN or infinite; the
// message names the position and the layer.
Status CheckLayer(const ModelSpec& spec, const StepBuffers& buffers, LayerId layer, size_t n_rows);

// Whether the device computes every node; null: the CPU, which does. kDevice, naming the node.
// type: of keys and values.
Status CheckComputes(const ComputeDevice* device, ggml_cgraph* graph, KvType type);

}  // namespace moestro
