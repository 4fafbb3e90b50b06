// SPDX-License-Identifier: MIT
#include "doctor/service_view.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace moestro {
namespace {

// User of the unit packaging/systemd/moestro.service.in.
constexpr std::string_view kUnitUser = "moestro";

// Range of numbers from which systemd takes users that exist only while a service runs.
constexpr uint32_t kFirstDynamic = 61184;
constexpr uint32_t kLastDynamic = 65519;

struct HiddenFolder {
  std::string_view path;
  std::string_view setting;
};
constexpr std::array<HiddenFolder, 5> kHidden = {{{"/home", "ProtectHome"},
                                                  {"/root", "ProtectHome"},
                                                  {"/run/user", "ProtectHome"},
                                                  {"/tmp", "PrivateTmp"},
                                                  {"/var/tmp", "PrivateTmp"}}};
constexpr std::array<std::string_view, 3> kPrivateRoots = {"/var/lib/private", "/var/cache/private",
                                                           "/var/log/private"};

bool LiesIn(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

bool IsAtOrBelow(std::string_view path, std::string_view folder) {
  return path == folder || LiesIn(path, folder);
}

// The service's folder that holds `path`, such as "/var/lib/private/moestro"; empty: `path` lies
// elsewhere.
std::string_view PrivateFolderOf(std::string_view path) {
  for (const std::string_view root : kPrivateRoots) {
    if (LiesIn(path, root)) return path.substr(0, path.find('/', root.size() + 1));
  }
  return {};
}

bool IsOwn(const UserFacts& user, std::string_view folder) {
  return folder.substr(folder.rfind('/') + 1) == user.name;
}

// The setting of the unit that hides `path`; empty: `path` is visible.
std::string_view HiddenBy(const UserFacts& user, std::string_view path) {
  const auto found = std::ranges::find_if(
      kHidden, [&](const HiddenFolder& hidden) { return IsAtOrBelow(path, hidden.path); });
  if (found != kHidden.end()) return found->setting;
  const std::string_view folder = PrivateFolderOf(path);
  return folder.empty() || IsOwn(user, folder) ? std::string_view() : "DynamicUser";
}

}  // namespace

bool IsService(const UserFacts& user) {
  return user.name == kUnitUser || !user.is_known ||
         (user.id >= kFirstDynamic && user.id <= kLastDynamic);
}

bool IsPrivateRoot(std::string_view path) { return std::ranges::contains(kPrivateRoots, path); }

ServiceView ViewOf(const UserFacts& user, const std::vector<PathStep>& steps) {
  ServiceView view;
  if (!IsService(user)) {
    view.steps = steps;
    return view;
  }
  std::optional<uint32_t> owner;  // of the service's own folder
  for (const PathStep& step : steps) {
    if (const std::string_view setting = HiddenBy(user, step.path); !setting.empty()) {
      // A hidden folder itself exists for the service, but is empty.
      const bool is_in_it =
          step.is_target || !std::ranges::contains(kHidden, step.path, &HiddenFolder::path);
      if (view.hidden.empty() && is_in_it) {
        view.hidden = step.path;
        view.setting = setting;
      }
      continue;
    }
    // The unit gives the service its own folder, and all in it that belonged to its last user.
    const std::string_view folder = PrivateFolderOf(step.path);
    if (IsPrivateRoot(step.path)) continue;
    if (!folder.empty() && folder == step.path) owner = step.owner;
    PathStep judged = step;
    if (!folder.empty() && owner == step.owner) judged.owner = user.id;
    view.steps.push_back(std::move(judged));
  }
  return view;
}

}  // namespace moestro
