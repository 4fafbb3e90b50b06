// SPDX-License-Identifier: MIT
#include "learned/policy_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/format.h"
#include "learned/beside_model.h"
#include "learned/tuning_file.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

const ModelId kPolicyModel = {
    .name = "m.gguf", .fingerprint = 5, .shape = {.n_layer = 2, .n_expert = 8, .n_used = 2}};

struct Asked {
  std::optional<PolicyChoice> policy = {};
  std::string file = {};
};

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

  void Put(const std::string& path, const std::string& policy, const ModelId& model) const {
    ASSERT_TRUE(
        WriteTuning(path, {.model = model, .sizes = {{.slots = 4, .choice = {.name = policy}}}}));
  }
  Result<PolicyChoice> Choose(const Asked& options) const {
    TRY(const PolicySource source, PolicySource::Find(options.policy, options.file, model_));
    return source.Choose(kPolicyModel, 4);
  }
  std::string Chosen(const Asked& options) const {
    const auto choice = Choose(options);
    return choice ? choice->name : choice.error().message;
  }

  fs::path folder_;
  std::string model_;
};

TEST_F(PolicySourceTest, TheMoreExplicitOneWins) {
  Asked options;
  EXPECT_EQ(Chosen(options), PolicyChoice{}.name);
  Put(TuningBeside(model_), "fld", kPolicyModel);
  EXPECT_EQ(Chosen(options), "fld");
  options.file = folder_ / "other.json";
  Put(options.file, "lfru", kPolicyModel);
  EXPECT_EQ(Chosen(options), "lfru");
  options.policy = PolicyChoice{.name = "lru"};
  EXPECT_EQ(Chosen(options), "lru");
}

TEST_F(PolicySourceTest, ABadTuningIsNamedWithTheRemedy) {
  ModelId foreign = kPolicyModel;
  foreign.fingerprint = 6;
  const std::string beside = TuningBeside(model_);
  Put(beside, "fld", foreign);
  for (const char* part : {"m.gguf.policy.json", "fingerprint", "--policy", "delete it"}) {
    EXPECT_NE(Chosen({}).find(part), std::string::npos) << Chosen({});
  }
  std::ofstream(beside) << "{";
  EXPECT_NE(Chosen({}).find("delete it"), std::string::npos) << Chosen({});
  // A request that names a policy does not read the file.
  Asked named;
  named.policy = PolicyChoice{.name = "lru"};
  EXPECT_EQ(Chosen(named), "lru");
  named.policy.reset();
  named.file = folder_ / "none.json";
  EXPECT_NE(Chosen(named).find("none.json"), std::string::npos) << Chosen(named);
  EXPECT_NE(Chosen(named).find("--policy-file"), std::string::npos) << Chosen(named);
}

}  // namespace
}  // namespace moestro
