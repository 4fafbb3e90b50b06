// SPDX-License-Identifier: MIT
#include "doctor/service_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "doctor/access.h"

namespace moestro {
namespace {

const UserFacts kUnit = {.name = "moestro", .id = 4'000'000, .groups = {}, .is_known = false};
const UserFacts kHuman = {.name = "anna", .id = 1000, .groups = {1000}};

// Every folder down to a file that its owner alone, number 61200, may read from "private" on.
std::vector<PathStep> WayTo(const std::string& path) {
  std::vector<PathStep> steps = {{.path = "/", .mode = 0755}};
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    steps.push_back({.path = folder, .mode = IsPrivateRoot(folder) ? 0700U : 0755U});
    if (folder.contains("/private/")) steps.back().owner = 61200;
  }
  steps.push_back({.path = path, .mode = 0600, .is_folder = false, .is_target = true});
  if (path.contains("/private/")) steps.back().owner = 61200;
  return steps;
}

TEST(ServiceView, AServiceIsOursOrHasAUserThatComesAndGoes) {
  EXPECT_TRUE(IsService(kUnit));
  EXPECT_TRUE(IsService({.name = "moestro", .id = 999}));
  EXPECT_TRUE(IsService({.name = "other", .id = 61184}));
  EXPECT_FALSE(IsService(kHuman));
  EXPECT_FALSE(IsService({.name = "root", .id = 0}));
}

TEST(ServiceView, ItsOwnFolderIsOpenToItWhileItRuns) {
  for (const char* path : {"/var/lib/private/moestro/a.gguf", "/var/lib/private/moestro/b/a.gguf",
                           "/var/cache/private/moestro/a.gguf"}) {
    const ServiceView view = ViewOf(kUnit, WayTo(path));
    EXPECT_EQ(view.hidden, "");
    EXPECT_TRUE(FindGaps(kUnit, view.steps).empty()) << path;
  }
  // A file that root put there and that root alone may read.
  std::vector<PathStep> steps = WayTo("/var/lib/private/moestro/a.gguf");
  steps.back().owner = 0;
  EXPECT_EQ(FindGaps(kUnit, ViewOf(kUnit, steps).steps).size(), 1U);
}

TEST(ServiceView, AnotherServicesFolderIsHidden) {
  const ServiceView view = ViewOf(kUnit, WayTo("/var/lib/private/other/a.gguf"));
  EXPECT_EQ(view.hidden, "/var/lib/private/other");
  EXPECT_EQ(view.setting, "DynamicUser");
}

TEST(ServiceView, HomesAndTemporaryFoldersAreHidden) {
  const std::string file = "/a.gguf";
  const std::string home = "/home";
  for (const auto& [folder, setting] :
       {std::pair(home + "/anna", "ProtectHome"), std::pair(std::string("/root"), "ProtectHome"),
        std::pair(std::string("/run/user/1000"), "ProtectHome"),
        std::pair(std::string("/tmp"), "PrivateTmp"),
        std::pair(std::string("/var/tmp"), "PrivateTmp")}) {
    EXPECT_EQ(ViewOf(kUnit, WayTo(folder + file)).setting, setting) << folder;
    EXPECT_EQ(ViewOf(kHuman, WayTo(folder + file)).hidden, "") << folder;
  }
  for (const char* folder : {"/homes", "/models/home", "/var/lib/moestro"}) {
    EXPECT_EQ(ViewOf(kUnit, WayTo(folder + file)).hidden, "") << folder;
  }
  // A link to elsewhere that lies in a home cannot be followed either.
  std::vector<PathStep> steps = WayTo(home + "/anna" + file);
  steps.pop_back();
  for (const PathStep& step : WayTo("/models" + file)) steps.push_back(step);
  EXPECT_EQ(ViewOf(kUnit, steps).hidden, home + "/anna");
}

TEST(ServiceView, EverybodyElseIsJudgedByAllBits) {
  const ServiceView view = ViewOf(kHuman, WayTo("/var/lib/private/moestro/a.gguf"));
  EXPECT_TRUE(std::ranges::contains(view.steps, "/var/lib/private", &PathStep::path));
  EXPECT_EQ(FindGaps(kHuman, view.steps).size(), 2U);
}

}  // namespace
}  // namespace moestro
