// SPDX-License-Identifier: MIT
// What names of models mean here: the hub that the environment says, and this machine's files.
#pragma once

#include <string>

#include "base/result.h"
#include "hub/hub_settings.h"
#include "hub/model_name.h"

namespace moestro {

// What the environment says, less what may be asked with --offline.
Result<HubSettings> HubSettingsOf(bool is_offline);
// By this machine's files, in which an existing path wins. What ParseModelName() says.
Result<ModelName> ModelNameOf(const std::string& text, const HubSettings& settings);
// The same. kInvalidRequest, too: an address of no hub.
Result<ModelName> HubNameOf(const std::string& text, const HubSettings& settings);

}  // namespace moestro
