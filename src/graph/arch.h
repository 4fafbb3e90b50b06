// SPDX-License-Identifier: MIT
#pragma once

#include "core/model_spec.h"

namespace moestro {

using ArchChoices = AttentionForm;

}  // namespace moestro
