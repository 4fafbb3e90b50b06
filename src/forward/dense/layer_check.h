// SPDX-License-Identifier: MIT
// Whether what a layer has left in the StepBuffers are numbers.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "forward/dense/step_buffers.h"

namespace moestro {

// Of a layer with a router the logits are looked at, else the result. What a layer without experts
// leaves on a device is left to the next router. kInvalidFile: some are NaN or infinite; the
// message names the position and the layer.
Status CheckLayer(const ModelSpec& spec, const StepBuffers& buffers, LayerId layer, size_t n_rows);

}  // namespace moestro
