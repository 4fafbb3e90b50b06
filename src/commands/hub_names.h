// SPDX-License-Identifier: MIT
// Meaning of models' names on this machine: by the hub that the environment names, and by local
// files.
#pragma once

#include <string>

#include "base/result.h"
#include "hub/hub_settings.h"
#include "hub/model_name.h"

namespace moestro {

// Settings of the hub by the environment; with --offline no server may be called.
Result<HubSettings> HubSettingsOf(bool is_offline);
// Parses a name; a path that exists here wins. Errors: those of ParseModelName().
Result<ModelName> ModelNameOf(const std::string& text, const HubSettings& settings);
// Parses a name of the hub, as ModelNameOf(). kInvalidRequest also for an address outside the hub.
Result<ModelName> HubNameOf(const std::string& text, const HubSettings& settings);

}  // namespace moestro
