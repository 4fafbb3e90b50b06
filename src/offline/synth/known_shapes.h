// SPDX-License-Identifier: MIT
// Parts of KnownShapes(), by kind of attention.
#pragma once

#include <span>

#include "offline/synth/synth_shapes.h"

namespace moestro {

std::span<const SynthShape> LatentShapes();

}  // namespace moestro
