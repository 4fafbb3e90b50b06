// SPDX-License-Identifier: MIT
// `moestro convert` from outside.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/number.h"
#include "tests/cli/program_testing.h"
#include "tests/support/file_size_limit_testing.h"
#include "tests/support/switch_folder_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::Program;

class ConvertCliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteTinySwitch(source_, {.type = GGML_TYPE_BF16});
    std::filesystem::create_directory(out_);
  }
  Finished Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"convert", "-t", "2"});
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  void ExpectError(std::vector<std::string> arguments, int exit_code,
                   const std::string& part) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_TRUE(run.err.starts_with("moestro: ")) << run.err;
    EXPECT_TRUE(run.err.contains(part)) << "wanted " << part << "\n" << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_TRUE(std::filesystem::is_empty(out_)) << part;
  }
  std::string made() const { return out_ + "/model.gguf"; }
  TempFolder folder_;
  std::string source_ = folder_.File("switch");
  std::string out_ = folder_.File("out");
};

TEST_F(ConvertCliTest, AFolderBecomesAFile) {
  const Finished run = Run({source_, "-o", made()});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(run.out.contains("2 encoder and 3 decoder layers, 3 of them with 3 experts"))
      << run.out;
  EXPECT_EQ(run.err, "");
  const uint64_t bytes = std::filesystem::file_size(made());
  EXPECT_EQ(Run({source_, "-o", made()}).exit_code, 1);
  const Finished again = Run({source_, "--type", "f32", "-o", made(), "--force"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_GT(std::filesystem::file_size(made()), 2 * bytes);
}

TEST_F(ConvertCliTest, MistakesAreNamed) {
  ExpectError({source_}, 2, "--output");
  ExpectError({"-o", made()}, 2, "DIR");
  ExpectError({source_, "-o", made(), "--type", "q4_k"}, 2, "unknown type 'q4_k'");
  ExpectError({source_ + "x", "-o", made()}, 1, "no folder");
  ExpectError({source_, "-o", out_}, 1, "is a folder");
  ExpectError({source_, "-o", out_, "--force"}, 1, "is a folder");
  ExpectError({source_, "-o", out_ + "/no/model.gguf"}, 1, "/no");
  std::ofstream(source_ + "/model.safetensors", std::ios::binary)
      << SafetensorsHeader(R"({"shared.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})");
  ExpectError({source_, "-o", made()}, 1, "ends at byte 4 of 0");
  std::ofstream(source_ + "/model.safetensors", std::ios::binary) << "\x80\x02}";
  ExpectError({source_, "-o", made()}, 1, "too short");
  std::filesystem::rename(source_ + "/model.safetensors", source_ + "/pytorch_model.bin");
  ExpectError({source_, "-o", made()}, 1, "is never read");
}

TEST_F(ConvertCliTest, AFullDiskLeavesNothing) {
  const FileSizeLimit limit(100 * kKiB);
  ExpectError({source_, "-o", made()}, 1, "model.gguf");
}

TEST_F(ConvertCliTest, AKilledConversionLeavesNothing) {
  std::filesystem::remove_all(source_);
  WriteTinySwitch(source_, {.embd = 2048, .ff = 8192, .has_values = false});  // takes seconds
  Program program(folder_.path(), {.arguments = {"convert", source_, "-o", made()}});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_EQ(kill(program.id(), SIGKILL), 0);
  EXPECT_EQ(program.Wait().exit_code, -1);
  EXPECT_TRUE(std::filesystem::is_empty(out_));
}

}  // namespace
}  // namespace moestro
