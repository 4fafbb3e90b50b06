// SPDX-License-Identifier: MIT
// What a command writes replaces nothing that the same command reads: every command with every
// output, every input and every way to say its name.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "model/gguf_testing.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::kDemo;
using testing::Program;

// A call without its outputs; "@name" is a file that is there. A unit test of cli/flags.h lists all
// outputs that there are.
struct Call {
  std::vector<std::string> arguments;
  std::vector<std::string> outputs;  // flags
};

const std::vector<Call>& Calls() {
  static const std::vector<Call> calls = {
      {{"bench", "@m.gguf", "--routing", "@routing", "--low", "@low"}, {"--record"}},
      {{"convert", "@config.json"}, {"--output"}},
      {{"devices", "@m.gguf", "--profile"}, {"--output"}},
      {{"eval", "@m.gguf", "--text", "@t1", "@t2", "--sweep", "cache=25%", "--paths", "@paths"},
       {"--output", "--plot", "--reference"}},
      {{"eval", "@m.gguf", "--text", "@t1", "--against", "@other.gguf"}, {"--reference"}},
      {{"eval", "@m.gguf", "--text", "@t1", "--shard", "1/2"}, {"--output"}},
      {{"fit", "@m.gguf", "--text", "@t1", "--imatrix", "@imatrix", "--tolerance", "KL=1",
        "--force"},
       {"--output", "--plot"}},
      {{"imatrix", "@m.gguf", "--text", "@t1", "--text", "@t2"}, {"--output"}},
      {{"logits", "@m.gguf", "--tokens", "1", "--every", "--policy-file", "@policy"}, {"--output"}},
      {{"merge", "@s1", "@s2"}, {"--output", "--norms-output"}},
      {{"eval", "@m.gguf", "--text", "@t1", "--sweep", "low=@low;t1=0.5"}, {"--output", "--plot"}},
      {{"plan", "@m.gguf"}, {"--machine-out"}},
      {{"profile", "@m.gguf", "--text", "@t1"}, {"--output", "--norms-output"}},
      {{"profile", "@m.gguf", "--trace", "@trace"}, {"--output"}},
      {{"quantize", "@m.gguf", "--experts", "q2_k", "--imatrix", "@imatrix", "--force"},
       {"--output"}},
      {{"run", "@m.gguf", "-f", "@t1", "--norms", "@norms", "--latency-model", "@costs",
        "--grammar-file", "@grammar"},
       {"--session"}},
      {{"sim", "@trace", "--sweep", "--machine", "@machine"}, {"--plot"}},
      {{"sim", "@trace", "--tune", "lru", "--paths", "@paths"}, {"--output"}},
      {{"synth", "--shape", "olmoe-1b-7b", "--vocab", "@v-00001-of-00002.gguf", "--force"},
       {"--output"}},
      {{"trace", "@m.gguf", "--text", "@t1", "@t2"}, {"--output"}},
      {{"trace", "--from-jsonl", "@jsonl", "--experts", "4"}, {"--output"}},
  };
  return calls;
}

class OutputsCliTest : public ::testing::Test {
 protected:
  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments), .input = {}}).Wait();
  }
  std::string Path(const std::string& name) const { return folder_.File(name); }

  // The call with its files, which are made; their names go to `inputs`.
  std::vector<std::string> Prepare(const Call& call, std::vector<std::string>& inputs) const {
    std::vector<std::string> arguments;
    for (const std::string& argument : call.arguments) {
      const size_t at = argument.find('@');
      if (at == std::string::npos) {
        arguments.push_back(argument);
        continue;
      }
      const size_t end = std::min(argument.find(';', at), argument.size());
      inputs.push_back(Path(argument.substr(at + 1, end - at - 1)));
      std::ofstream(inputs.back()) << "precious " << argument;
      arguments.push_back(argument.substr(0, at) + inputs.back() + argument.substr(end));
    }
    return arguments;
  }

  // Other names of a file.
  std::vector<std::string> NamesOf(const std::string& file) const {
    const std::string leaf = fs::path(file).filename().string();
    std::error_code there;
    fs::create_directory(Path("a"), there);
    fs::create_symlink(file, Path("link-" + leaf), there);
    fs::create_symlink("link-" + leaf, Path("far-" + leaf), there);
    fs::create_hard_link(file, Path("hard-" + leaf), there);
    return {file, Path("a/../" + leaf), Path("far-" + leaf), Path("hard-" + leaf)};
  }

  TempFolder folder_;
};

TEST_F(OutputsCliTest, ReplaceNothingThatIsRead) {
  for (const Call& call : Calls()) {
    std::vector<std::string> inputs;
    const std::vector<std::string> arguments = Prepare(call, inputs);
    for (const std::string& output : call.outputs) {
      for (const std::string& input : inputs) {
        for (const std::string& name : NamesOf(input)) {
          std::vector<std::string> all = arguments;
          all.insert(all.end(), {output, name});
          for (const std::string& other : call.outputs) {
            if (other != output) all.insert(all.end(), {other, "/dev/null"});
          }
          const Finished run = Run(all);
          EXPECT_EQ(run.exit_code, 1) << call.arguments[0] << " " << output << " " << name;
          EXPECT_TRUE(run.err.contains("is read here")) << run.err;
          EXPECT_TRUE(ReadAll(input).starts_with("precious")) << input;
        }
      }
    }
  }
}

// MODEL.paths and the like are read unnamed; a command replaces only the one that it makes.
TEST_F(OutputsCliTest, ReplaceNothingThatLiesBesideAModel) {
  const auto is_made = [](const std::string& command, const std::string& output,
                          const std::string& kind) {
    return (command == "profile" && output == "--output" && kind == ".paths") ||
           (command == "profile" && output == "--norms-output" && kind == ".norms") ||
           (command == "eval" && output == "--output" && kind == ".sweep.json");
  };
  for (const Call& call : Calls()) {
    std::vector<std::string> inputs;
    const std::vector<std::string> arguments = Prepare(call, inputs);
    if (!std::ranges::contains(call.arguments, "@m.gguf")) continue;
    for (const std::string kind : {".paths", ".norms", ".policy.json", ".sweep.json"}) {
      const std::string beside = Path("m.gguf" + kind);
      std::ofstream(beside) << "precious";
      for (const std::string& output : call.outputs) {
        std::vector<std::string> all = arguments;
        all.insert(all.end(), {output, beside});
        for (const std::string& other : call.outputs) {
          if (other != output) all.insert(all.end(), {other, "/dev/null"});
        }
        const Finished run = Run(all);
        EXPECT_NE(run.exit_code, 0) << call.arguments[0] << " " << output << " " << kind;
        EXPECT_EQ(run.err.contains("is read here"), !is_made(call.arguments[0], output, kind))
            << call.arguments[0] << " " << output << " " << kind << ": " << run.err;
        EXPECT_EQ(ReadAll(beside), "precious");
      }
    }
  }
}

TEST_F(OutputsCliTest, AreTwoFiles) {
  fs::create_symlink("both", Path("link"));  // leads to a file that is not there
  for (const Call& call : Calls()) {
    if (call.outputs.size() < 2) continue;
    std::vector<std::string> inputs;
    std::vector<std::string> all = Prepare(call, inputs);
    all.insert(all.end(), {call.outputs[0], Path("both"), call.outputs[1], Path("a/../link")});
    fs::create_directories(Path("a"));
    const Finished run = Run(all);
    EXPECT_EQ(run.exit_code, 2) << call.arguments[0];
    EXPECT_TRUE(run.err.contains("give two names")) << run.err;
    EXPECT_FALSE(fs::exists(Path("both")));
  }
}

TEST_F(OutputsCliTest, SpareTheOtherPartsOfAModel) {
  std::vector<std::string> inputs;
  const Call call{
      {"synth", "--shape", "olmoe-1b-7b", "--vocab", "@v-00001-of-00002.gguf", "--force"}, {}};
  std::vector<std::string> all = Prepare(call, inputs);
  std::ofstream(Path("v-00002-of-00002.gguf")) << "precious";
  all.insert(all.end(), {"-o", Path("v-00002-of-00002.gguf")});
  const Finished run = Run(all);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(run.err.contains("is read here")) << run.err;
}

TEST_F(OutputsCliTest, PartsDoNotFollowLinksIntoEachOther) {
  std::ofstream(Path("v-00001-of-00002.gguf")) << "precious";
  fs::create_symlink("v-00001-of-00002.gguf", Path("v-00002-of-00002.gguf"));
  const Finished run = Run({"synth",
                            "--shape",
                            "olmoe-1b-7b",
                            "--layers",
                            "1",
                            "--experts",
                            "4",
                            "--used",
                            "1",
                            "--embd",
                            "256",
                            "--ff",
                            "256",
                            "--heads",
                            "4",
                            "--kv-heads",
                            "4",
                            "--head-dim",
                            "64",
                            "--type",
                            "F16",
                            "--vocab-size",
                            "300",
                            "--split",
                            "2",
                            "-o",
                            Path("v.gguf"),
                            "--force"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(run.err.contains("give two names")) << run.err;
  EXPECT_EQ(ReadAll(Path("v-00001-of-00002.gguf")), "precious");
}

TEST_F(OutputsCliTest, GoWhereALinkLeads) {
  fs::create_symlink("real.trace", Path("link"));
  const Finished run = Run({"trace", kDemo, "--random", "8", "-o", Path("link"), "-t", "1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_TRUE(fs::is_regular_file(Path("real.trace")));
}

TEST_F(OutputsCliTest, GoIntoPipesAndStandardOutput) {
  const std::vector<std::string> trace = {"trace", kDemo, "--random", "8", "-t", "1", "-o"};
  const auto with = [&](const std::string& output) {
    std::vector<std::string> all = trace;
    all.push_back(output);
    return all;
  };
  ASSERT_EQ(Run(with(Path("file"))).exit_code, 0);
  const std::string expected = ReadAll(Path("file"));
  const Finished piped = Run(with("/dev/stdout"));  // a pipe here
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_TRUE(piped.out == expected);
  std::ofstream(Path("log")) << "before";
  const int log = open(Path("log").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const Finished appended =
      Program(folder_.path(), {.arguments = with("/dev/stdout"), .input = {}, .out_fd = log})
          .Wait();
  EXPECT_EQ(appended.exit_code, 0) << appended.err;
  EXPECT_TRUE(ReadAll(Path("log")) == "before" + expected);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = ReadAll(Path("pipe")); });
  EXPECT_EQ(Run(with(Path("pipe"))).exit_code, 0);
  reader.join();
  EXPECT_TRUE(read == expected);
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
  EXPECT_EQ(Run(with("/dev/null")).exit_code, 0);
  EXPECT_EQ(Run(with("/dev/full")).exit_code, 1);
}

// Also in one-line messages and in tables: a line end in a name makes no second line.
TEST_F(OutputsCliTest, ShowNoEscapeSequences) {
  const std::string hostile = "\x1b]0;owned\x07\x1b[31m\u009b1m\nfake line\r\u202egpj";
  SmallMoe("olmoe").Set("general.name", hostile.c_str()).Write(Path("name.gguf"));
  SmallMoe("olmoe").Set("tokenizer.ggml.model", hostile.c_str()).Write(Path("tokenizer.gguf"));
  SmallMoe("olmoe").Set("general.architecture", hostile.c_str()).Write(Path("arch.gguf"));
  SmallMoe("olmoe").Tensor(hostile, GGML_TYPE_F32, {32}).Write(Path("tensor.gguf"));
  const std::string odd = Path("odd" + hostile);
  SmallMoe("olmoe").Write(odd);
  for (const std::string& model : {Path("name.gguf"), Path("tokenizer.gguf"), Path("arch.gguf"),
                                   Path("tensor.gguf"), odd, Path("missing" + hostile)}) {
    for (const std::vector<std::string>& call : std::vector<std::vector<std::string>>{
             {"inspect", model},
             {"inspect", model, "--json"},
             {"plan", model, "--offline"},
             {"run", model, "-p", "a", "-n", "1", "-v"},
             {"trace", model, "--random", "4", "--summary"},
             {"quantize", model, "--experts", hostile, "-o", Path("low")},
             {"logits", model, "--tokens", "1", "--every", "-o", Path("none/" + hostile)}}) {
      const Finished run = Run(call);
      EXPECT_GE(run.exit_code, 0) << call[0];
      for (const std::string& said : {run.out, run.err}) {
        EXPECT_EQ(said.find_first_of("\x1b\x07\r"), std::string::npos) << call[0] << "\n" << said;
        EXPECT_FALSE(said.contains("\u009b") || said.contains("\u202e")) << call[0] << "\n" << said;
        EXPECT_FALSE(said.contains("\nfake line")) << call[0] << "\n" << said;
      }
    }
  }
}

// Of files that must be files; a text may come through a pipe.
TEST_F(OutputsCliTest, NobodyWaitsForAPipeThatMustBeAFile) {
  const std::string pipe = Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::vector<std::vector<std::string>> calls = {
      {"synth", "--shape", "olmoe-1b-7b", "--vocab", pipe, "-o", Path("out")},
      {"run", kDemo, "-p", "a", "-n", "1", "--paths", pipe, "--predictor", "paths"},
      {"run", kDemo, "-p", "a", "-n", "1", "--norms", pipe, "--importance", "score-norm",
       "--drop-below", "0.1"},
      {"run", kDemo, "-p", "a", "-n", "1", "--low", pipe},
      {"run", kDemo, "-p", "a", "-n", "1", "--policy-file", pipe},
      {"run", kDemo, "-p", "a", "-n", "1", "--session", pipe},
      {"run", pipe, "-p", "a"},
      {"inspect", pipe},
      {"sim", pipe},
      {"merge", pipe},
      {"quantize", kDemo, "--experts", "q2_k", "--imatrix", pipe, "-o", Path("out")}};
  for (const std::vector<std::string>& call : calls) {
    const Finished run = Run(call);  // the test ends by its time limit where it waits
    EXPECT_EQ(run.exit_code, 1) << call[0] << " " << call.back() << run.err;
    EXPECT_TRUE(run.err.contains("not a file") || run.err.contains("not a regular file"))
        << run.err;
  }
}

// What is looked for beside such a file would have too long a name, and so is not there.
TEST_F(OutputsCliTest, AModelsNameMayHave250Bytes) {
  const std::string model = Path(std::string(245, 'm') + ".gguf");
  fs::copy_file(kDemo, model);
  const Finished run = Run({"run", model, "-p", "Once", "-n", "2", "-t", "1", "--temp", "0"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

}  // namespace
}  // namespace moestro
