// SPDX-License-Identifier: MIT
#include "commands/hub_names.h"

#include <filesystem>
#include <system_error>

#include "base/printable.h"

namespace moestro {

Result<HubSettings> HubSettingsOf(bool is_offline) {
  TRY(HubSettings settings, ReadHubSettings());
  settings.is_offline = settings.is_offline || is_offline;
  return settings;
}

Result<ModelName> ModelNameOf(const std::string& text, const HubSettings& settings) {
  return ParseModelName(text, settings.endpoint, [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  });
}

Result<ModelName> HubNameOf(const std::string& text, const HubSettings& settings) {
  TRY(const ModelName name, ModelNameOf(text, settings));
  if (name.kind != ModelNameKind::kAddress) return name;
  return Fail(Errc::kInvalidRequest,
              "{} is of no hub, so no cache has a place for it; fetch it with: curl -LO {}",
              Printable(text, 400), Printable(text, 400));
}

}  // namespace moestro
