// SPDX-License-Identifier: MIT
#include "commands/step_report.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "decide/layer/layer_planner.h"

namespace moestro {
namespace {

TEST(OneStepKlReport, SaysWhatItIsAndWhatWasWished) {
  OneStepKl kl;
  EXPECT_NE(DescribeOneStepKl(kl, 0.01, true).find("exact"), std::string::npos);
  EXPECT_NE(DescribeOneStepKl(kl, 0.01, false).find("not checked"), std::string::npos);
  const std::array even = {1.0F, 1.0F};
  kl.Add(even, even);
  const std::string text = DescribeOneStepKl(kl, 0.01, false);
  for (const char* part :
       {"one-step KL 0: each 128th token, 1 in all", "same history", "0.01 was wished"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  Json object = Json::Object();
  AddOneStepKl(object, kl, 0.01);
  EXPECT_EQ(object.Find("one_step_kl_tokens")->number(), 1.0);
  EXPECT_EQ(object.Find("one_step_kl_se")->Dump(), "null");
}

TEST(PlanLog, ShowsTheLatestStepOnly) {
  const Routing routing{.n_tokens = 2,
                        .n_used = 2,
                        .experts = {ExpertId{4}, ExpertId{1}, ExpertId{1}, ExpertId{7}},
                        .weights = {0.75F, 0.25F, 0.5F, 0.5F}};
  const std::vector<RowKind> kinds(2, RowKind::kDecode);
  PlanLog log;
  for (const bool is_present : {true, false}) {
    log.Note(PlanLayer(ExpertLayerId{0}, routing, kinds, [&](ExpertKey) { return is_present; }));
  }
  EXPECT_EQ(log.Text({}),
            "plans of the last step: expert (where from, weight by row)\n"
            "layer   0:  4 (disk, 0:0.750)  1 (disk, 0:0.250 1:0.500)  7 (disk, 1:0.500)\n");
}

TEST(PlanLog, SaysWhatADeviceComputesAndWhatTheLanesTook) {
  const Routing routing{.n_tokens = 1,
                        .n_used = 3,
                        .experts = {ExpertId{4}, ExpertId{1}, ExpertId{2}},
                        .weights = {0.5F, 0.25F, 0.25F}};
  const RowKind kind = RowKind::kDecode;
  LayerPlan plan = PlanLayer(ExpertLayerId{0}, routing, {&kind, 1}, [](ExpertKey) { return true; });
  plan.experts[1].place = Place::kCopied;
  plan.experts[1].device = 1;
  plan.experts[2].place = Place::kDevice;
  plan.predicted = {.host = 100e-6,
                    .devices = {{.compute = 90e-6}, {.compute = 80e-6, .copy = 60e-6}}};
  plan.took = {.host = 110e-6, .devices = {{.compute = 95e-6}, {.compute = 85e-6}}};
  PlanLog log;
  log.Note(plan);
  const std::array<std::string, 2> names = {"CUDA0", "CUDA1"};
  EXPECT_EQ(
      log.Text(names),
      "plans of the last step: expert (where from, weight by row)\n"
      "layer   0:  4 (memory, 0.500)  1 (memory to CUDA1, 0.250)  2 (CUDA0, 0.250)\n"
      "           predicted us: CPU 100, disk 0, CUDA0 90, copies to it 0, CUDA1 80, copies to "
      "it 60; took: CPU 110, CUDA0 95, CUDA1 85\n");
  plan.took = {};
  log.Note(plan);
  EXPECT_NE(log.Text(names).find("copies to it 60; not waited for\n"), std::string::npos)
      << log.Text(names);
}

TEST(PlanLog, OneRowNeedsNoNumber) {
  const Routing routing{
      .n_tokens = 1, .n_used = 2, .experts = {ExpertId{4}, ExpertId{1}}, .weights = {0.75F, 0.25F}};
  const RowKind kind = RowKind::kDecode;
  PlanLog log;
  log.Note(PlanLayer(ExpertLayerId{0}, routing, {&kind, 1},
                     [](ExpertKey key) { return key.expert.value == 1; }));
  EXPECT_EQ(log.Text({}),
            "plans of the last step: expert (where from, weight by row)\n"
            "layer   0:  1 (memory, 0.250)  4 (disk, 0.750)\n");
}

}  // namespace
}  // namespace moestro
