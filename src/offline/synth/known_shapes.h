// SPDX-License-Identifier: MIT
// Parts of KnownShapes(), by kind of attention.
#pragma once

#include <span>
#include <vector>

#include "offline/synth/synth_shapes.h"

namespace moestro {

std::span<const SynthShape> LatentShapes();
// Models with an encoder.
std::vector<SynthShape> EncoderShapes();

}  // namespace moestro
