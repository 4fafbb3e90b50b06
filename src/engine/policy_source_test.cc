// SPDX-License-Identifier: MIT
#include "engine/policy_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/format.h"
#include "engine/tuning_file.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

const TunedModel kModel = {.name = "m.gguf", .id = 5, .n_layer = 2, .n_expert = 8, .n_used = 2};

class PolicySourceTest : public ::testing::Test {
 protected:
  PolicySourceTest()
      : folder_(fs::temp_directory_path() /
                Format("moestro_source_{}_{}", getpid(),
                       ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        model_(folder_ / "m.gguf") {
    fs::create_directories(folder_);
  }
  ~PolicySourceTest() override { fs::remove_all(folder_); }

  void Put(const std::string& path, const std::string& policy, const TunedModel& model) const {
    ASSERT_TRUE(
        WriteTuning(path, {.model = model, .sizes = {{.slots = 4, .choice = {.name = policy}}}}));
  }
  Result<PolicyChoice> Choose(const EngineOptions& options) const {
    TRY(const PolicySource source, PolicySource::Find(options, model_));
    return source.Choose(kModel, 4);
  }
  std::string Chosen(const EngineOptions& options) const {
    const auto choice = Choose(options);
    return choice ? choice->name : choice.error().message;
  }

  fs::path folder_;
  std::string model_;
};

TEST_F(PolicySourceTest, TheMoreExplicitOneWins) {
  EngineOptions options;
  EXPECT_EQ(Chosen(options), PolicyChoice{}.name);
  Put(TuningPathFor(model_), "fld", kModel);
  EXPECT_EQ(Chosen(options), "fld");
  options.policy_file = folder_ / "other.json";
  Put(options.policy_file, "lfru", kModel);
  EXPECT_EQ(Chosen(options), "lfru");
  options.policy = PolicyChoice{.name = "lru"};
  EXPECT_EQ(Chosen(options), "lru");
}

TEST_F(PolicySourceTest, ABadTuningIsNamedWithTheRemedy) {
  TunedModel foreign = kModel;
  foreign.id = 6;
  const std::string beside = TuningPathFor(model_);
  Put(beside, "fld", foreign);
  for (const char* part : {"m.gguf.policy.json", "fingerprint", "--policy", "delete it"}) {
    EXPECT_NE(Chosen({}).find(part), std::string::npos) << Chosen({});
  }
  std::ofstream(beside) << "{";
  EXPECT_NE(Chosen({}).find("delete it"), std::string::npos) << Chosen({});
  // Whoever names a policy need not care.
  EngineOptions named;
  named.policy = PolicyChoice{.name = "lru"};
  EXPECT_EQ(Chosen(named), "lru");
  named.policy.reset();
  named.policy_file = folder_ / "none.json";
  EXPECT_NE(Chosen(named).find("none.json"), std::string::npos) << Chosen(named);
  EXPECT_NE(Chosen(named).find("--policy-file"), std::string::npos) << Chosen(named);
}

}  // namespace
}  // namespace moestro
