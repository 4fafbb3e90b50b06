// SPDX-License-Identifier: MIT
// Every command that computes, over a model with weights that are NaN: exit code 1, a sentence that
// names the layer, and no file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/program_testing.h"
#include "tests/support/damage_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::Program;

TEST(DamagedModelProgram, NanIsAnErrorInEveryCommand) {
  const TempFolder folder;
  const std::string model = folder.File("model.gguf");
  std::filesystem::copy_file(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf", model);
  FillWithNan(model, "blk.2.ffn_down_exps.weight");
  const std::string story = folder.File("story.txt");
  {
    std::ofstream text(story);
    for (int i = 0; i < 8; ++i) text << "Once upon a time, there was a little dog named Max. ";
  }
  const std::string out = folder.File("out");
  using Arguments = std::vector<std::string>;
  for (Arguments arguments : {Arguments{"logits", model, "--tokens", "1,2,3"},
                              Arguments{"logits", model, "--tokens", "1,2,3", "--every", "-o", out},
                              Arguments{"run", model, "-p", "Once", "-n", "3"},
                              Arguments{"run", model, "-p", "Once", "-n", "3", "--beams", "2"},
                              Arguments{"bench", model, "-p", "8", "-n", "3", "--json"},
                              Arguments{"eval", model, "--text", story},
                              Arguments{"trace", model, "--text", story, "-o", out},
                              Arguments{"profile", model, "--text", story, "-o", out},
                              Arguments{"imatrix", model, "--text", story, "-o", out},
                              Arguments{"fit", model, "--text", story, "--window", "16",
                                        "--tolerance", "KL=0.5", "-o", out},
                              Arguments{"quantize", model, "--experts", "q2_k", "-o", out}}) {
    SCOPED_TRACE(arguments.front());
    arguments.insert(arguments.end(), {"--threads", "1"});
    const Finished finished = Program(folder.path(), {.arguments = std::move(arguments)}).Wait();
    EXPECT_EQ(finished.exit_code, 1) << finished.err;
    EXPECT_TRUE(finished.err.contains("layer 2") || finished.err.contains("blk.2."))
        << finished.err;
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

}  // namespace
}  // namespace moestro
