// SPDX-License-Identifier: MIT
#include "house/house_bodies.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"

namespace moestro {
namespace {

ModelReport Loaded() {
  return {.name = "a",
          .state = HouseState::kReady,
          .bytes = 500,
          .running = 2,
          .requests = 7,
          .needs = HouseNeeds{.smallest = 400, .best = 900},
          .expires_in = 1.5,
          .model = R"({"id":"a","object":"model","meta":{"n_ctx":64}})",
          .tag = R"({"name":"a","model":"a","size":1})",
          .show = "{}"};
}

ModelReport Broken() { return {.name = "b\"\\", .error = "no GGUF"}; }

std::string At(const std::string& text, const std::vector<std::string>& path) {
  const auto json = Json::Parse(text);
  if (!json) return "no JSON: " + text;
  JsonView at = json->view();
  for (const std::string& key : path) {
    const auto found = key == "0" || key == "1" ? at.At(key[0] - '0') : at.Find(key);
    if (!found) return "absent";
    at = *found;
  }
  return at.Dump();
}

TEST(HouseBodies, AListSaysWhatIsLoadedAndWhatIsNeeded) {
  const std::string list = HouseModelsBody(std::vector{Loaded(), Broken()});
  EXPECT_EQ(At(list, {"object"}), R"("list")");
  EXPECT_EQ(At(list, {"data", "0", "meta", "n_ctx"}), "64");
  EXPECT_EQ(At(list, {"data", "0", "loaded"}), "true");
  EXPECT_EQ(At(list, {"data", "0", "status", "value"}), R"("loaded")");
  EXPECT_EQ(At(list, {"data", "0", "needs", "smallest"}), "400");
  EXPECT_EQ(At(list, {"data", "0", "needs", "best"}), "900");
  EXPECT_EQ(At(list, {"data", "0", "ram"}), "500");
  EXPECT_EQ(At(list, {"data", "0", "error"}), "absent");
  EXPECT_EQ(At(list, {"data", "1", "id"}), R"("b\"\\")");
  EXPECT_EQ(At(list, {"data", "1", "loaded"}), "false");
  EXPECT_EQ(At(list, {"data", "1", "needs"}), "absent");
  EXPECT_EQ(At(list, {"data", "1", "error"}), R"("no GGUF")");
}

// A process that reads a hostile file may say anything.
TEST(HouseBodies, ReportsThatAreNoObjectsAreLeftOut) {
  ModelReport odd = Loaded();
  odd.model = "[1]";
  odd.tag = "5";
  EXPECT_EQ(At(HouseModelsBody(std::vector{odd}), {"data", "0", "id"}), R"("a")");
  EXPECT_EQ(At(HouseTagsBody(std::vector{odd}), {"models", "0", "model"}), R"("a")");
  EXPECT_EQ(At(HouseModelBody(odd), {"loaded"}), "true");
}

TEST(HouseBodies, OllamasListsHaveWhatCanBeUsedAndWhatIsLoaded) {
  const std::vector reports = {Loaded(), Broken()};
  EXPECT_EQ(At(HouseTagsBody(reports), {"models", "0", "model"}), R"("a")");
  EXPECT_EQ(At(HouseTagsBody(reports), {"models", "1"}), "absent");
  const std::string running = HouseRunningBody(reports, 0);
  EXPECT_EQ(At(running, {"models", "0", "expires_at"}), R"("1970-01-01T00:00:02Z")");
  EXPECT_EQ(At(running, {"models", "0", "size"}), "500");
  ModelReport stays = Loaded();
  stays.expires_in.reset();
  EXPECT_EQ(At(HouseRunningBody(std::vector{stays}, 0), {"models", "0", "expires_at"}),
            R"("2318-01-01T00:00:00Z")");
}

TEST(HouseBodies, MetricsNameModels) {
  const std::string text =
      HouseMetrics(std::vector{Loaded(), Broken()},
                   {.budget = 1000, .held = 500, .counts = {.loads = 3, .shrinks = 2}});
  for (const char* line : {"moestro_house_budget_bytes 1000\n", "moestro_house_held_bytes 500\n",
                           "moestro_house_model_bytes{model=\"a\"} 500\n",
                           "moestro_house_model_loaded{model=\"b\\\"\\\\\"} 0\n",
                           "moestro_house_model_running{model=\"a\"} 2\n",
                           "moestro_house_model_requests_total{model=\"a\"} 7\n",
                           "moestro_house_loads_total 3\n", "moestro_house_shrinks_total 2\n"}) {
    EXPECT_TRUE(text.contains(line)) << line << text;
  }
}

TEST(HouseBodies, AnEndedModelIsSaidInOllamasForm) {
  EXPECT_EQ(At(HouseUnloadedBody("a", false, 0), {"done_reason"}), R"("unload")");
  EXPECT_EQ(At(HouseUnloadedBody("a", false, 0), {"response"}), R"("")");
  EXPECT_EQ(At(HouseUnloadedBody("a", true, 0), {"message", "content"}), R"("")");
}

}  // namespace
}  // namespace moestro
