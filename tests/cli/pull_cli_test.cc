// SPDX-License-Identifier: MIT
// Models by name, from outside: pull, list, remove, and names in place of paths.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "hub/hub_cache.h"
#include "tests/cli/program_testing.h"
#include "tests/support/content_name_testing.h"
#include "tests/support/hub_server_testing.h"
#include "tests/support/small_disk_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::kDemo;
using testing::Program;
using testing::Start;

const std::string kCommit(40, 'a');

class PullCliTest : public ::testing::Test {
 protected:
  PullCliTest() {
    server_.Add("o/stories", kCommit, "stories-Q8_0.gguf", model_);
    server_.Add("o/stories", kCommit, "README.md", "read me", false);
    // The program's cache is XDG_CACHE_HOME, which tests set; these would come first.
    for (const char* name : {"LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                             "HF_TOKEN", "HF_HUB_OFFLINE"}) {
      unsetenv(name);
    }
    setenv("HF_ENDPOINT", server_.endpoint().c_str(), 1);
  }
  ~PullCliTest() override { unsetenv("HF_ENDPOINT"); }

  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  std::string Cache() const { return folder_.File("huggingface/hub"); }
  std::string Blob() const { return Cache() + "/models--o--stories/blobs/" + Sha256Of(model_); }
  static std::vector<Json> Lines(const std::string& text) {
    std::vector<Json> lines;
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      auto line = Json::Parse(text.substr(at, text.find('\n', at) - at));
      EXPECT_TRUE(line) << text;
      if (line) lines.push_back(*std::move(line));
    }
    return lines;
  }

  std::string model_ = ReadAll(kDemo);
  HubServer server_;
  TempFolder folder_;
};

TEST_F(PullCliTest, PullListRunRemove) {
  const Finished pulled = Run({"pull", "o/stories"});
  ASSERT_EQ(pulled.exit_code, 0) << pulled.err;
  const std::vector<Json> lines = Lines(pulled.out);
  EXPECT_EQ(lines.front().Find("event")->text(), "plan");
  EXPECT_EQ(lines.back().Find("event")->text(), "done");
  const std::string path = lines.back().Find("path")->text().value_or("");
  EXPECT_EQ(path, Cache() + "/models--o--stories/snapshots/" + kCommit + "/stories-Q8_0.gguf");
  EXPECT_TRUE(ReadAll(path) == model_);

  server_.Forget();
  EXPECT_TRUE(Run({"list"}).out.contains("o/stories:Q8_0"));
  const Finished list = Run({"list", "--json"});
  EXPECT_EQ(Lines(list.out).front().Find("models")->size(), 1);
  const Finished told = Run({"run", "o/stories", "-p", "Once", "-n", "4", "--temp", "0"});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_FALSE(told.out.empty());
  EXPECT_EQ(Run({"inspect", "o/stories:q8_0"}).exit_code, 0);
  EXPECT_TRUE(server_.asked().empty()) << "what is here is used";

  const Finished removed = Run({"remove", "o/stories:Q8_0"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_TRUE(removed.out.contains("freed")) << removed.out;
  EXPECT_FALSE(fs::exists(Blob()));
  EXPECT_TRUE(Run({"list"}).out.contains("moestro pull"));
}

TEST_F(PullCliTest, WhatIsNotHereIsNeverFetchedSilently) {
  for (const char* command : {"run", "serve", "bench", "inspect"}) {
    const Finished refused = Run({command, "o/stories:Q8_0"});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_TRUE(refused.err.contains("moestro pull o/stories:Q8_0")) << refused.err;
  }
  EXPECT_TRUE(server_.asked().empty());
  const Finished offline = Run({"inspect", "o/stories:Q8_0", "--yes", "--offline"});
  EXPECT_EQ(offline.exit_code, 1);
  EXPECT_TRUE(offline.err.contains("offline")) << offline.err;
  EXPECT_TRUE(server_.asked().empty());
  const Finished too_large = Run({"bench", "o/stories:Q8_0", "--yes", "--ram", "1M"});
  EXPECT_EQ(too_large.exit_code, 1);
  EXPECT_TRUE(too_large.err.contains("o/stories:Q8_0 does not fit")) << too_large.err;
  EXPECT_TRUE(Run({"list"}).out.contains("moestro pull")) << "it has been fetched";
  // It is only looked at.
  const Finished fetched = Run({"inspect", "o/stories:Q8_0", "--yes", "--ram", "1M"});
  EXPECT_EQ(fetched.exit_code, 0) << fetched.err;
  EXPECT_TRUE(fetched.err.contains("o/stories:Q8_0 does not fit")) << fetched.err;
  EXPECT_TRUE(fetched.err.contains("fetches o/stories:Q8_0")) << fetched.err;
}

TEST_F(PullCliTest, ADryRunFetchesNothing) {
  const Finished planned = Run({"pull", "o/stories", "--dry-run"});
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(Lines(planned.out).front().Find("missing_bytes")->integer(),
            static_cast<int64_t>(model_.size()));
  EXPECT_TRUE(server_.AskedForContent().empty());
  EXPECT_FALSE(fs::exists(Cache()));
}

TEST_F(PullCliTest, ErrorsAreSentences) {
  const auto error_of = [&](const std::string& name) {
    const Finished failed = Run({"pull", name});
    EXPECT_NE(failed.exit_code, 0) << name;
    EXPECT_EQ(std::ranges::count(failed.err, '\n'), 1) << failed.err;
    return failed.err;
  };
  EXPECT_TRUE(error_of("o/none").contains("no repository o/none"));
  EXPECT_TRUE(error_of("o/stories:Q8_1").contains("nearest: Q8_0"));
  EXPECT_TRUE(error_of("stories").contains("no name of a model"));
  EXPECT_TRUE(error_of("https://files.test/x.gguf").contains("curl -LO"));
  setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  EXPECT_TRUE(error_of("o/stories").contains("cannot reach"));
  EXPECT_EQ(Run({"remove", "o/none"}).exit_code, 1);
}

TEST_F(PullCliTest, ADiskWithoutRoomIsSaidBeforeTheFirstByte) {
  fs::create_directories(Cache());
  const SmallDisk disk(Cache(), 200'000);
  if (!disk.is_there()) GTEST_SKIP() << "may not mount";
  const Finished failed = Run({"pull", "o/stories"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_TRUE(failed.err.contains("free there; make room")) << failed.err;
  EXPECT_TRUE(server_.AskedForContent().empty());
  EXPECT_TRUE(fs::is_empty(Cache()));
}

TEST_F(PullCliTest, ACacheThatCannotBeWrittenIsASentence) {
  fs::create_directories(Cache());
  const SmallDisk disk(Cache(), 64'000'000);
  if (!disk.is_there()) GTEST_SKIP() << "may not mount";
  ASSERT_EQ(mount("none", Cache().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const Finished failed = Run({"pull", "o/stories"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_TRUE(failed.err.contains("Read-only")) << failed.err;
  EXPECT_TRUE(failed.err.contains("HF_HUB_CACHE")) << failed.err;
}

class KilledPullTest : public PullCliTest {
 protected:
  static constexpr uint64_t kFirstPart = uint64_t{32} << 20;

  // Starts a pull that hangs after the first part, and waits until that is on the disk.
  std::unique_ptr<Program> StartSlowPull() {
    std::string block = SomeBytes(1'000'000);
    model_.clear();
    for (int i = 0; i < 50; ++i) {
      block[0] = static_cast<char>(i);
      model_ += block;
    }
    server_.Add("o/large", kCommit, "large-Q8_0.gguf", model_);
    server_.OnReply([](const HubServer::Asked& asked, HubServer::Answer& answer, size_t n) {
      if (asked.is_for_content() && n > 0) answer.stays_silent = true;
    });
    auto program =
        std::make_unique<Program>(folder_.path(), Start{.arguments = {"pull", "o/large"}});
    const HubCache cache(Cache());
    const auto there = [&] {
      const auto parts = cache.PartsOf("o/large");
      return parts.empty() ? 0 : parts.front().there;
    };
    for (int i = 0; i < 2000 && there() < kFirstPart; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(there(), kFirstPart);
    return program;
  }
  void ExpectRestIsFetched() {
    server_.OnReply({});
    server_.Forget();
    const Finished pulled = Run({"pull", "o/large"});
    ASSERT_EQ(pulled.exit_code, 0) << pulled.err;
    EXPECT_TRUE(ReadAll(Cache() + "/models--o--large/blobs/" + Sha256Of(model_)) == model_);
    size_t bytes = 0;
    for (const HubServer::Asked& asked : server_.AskedForContent()) bytes += asked.range_bytes();
    EXPECT_EQ(bytes, model_.size() - kFirstPart);
  }
};

TEST_F(KilledPullTest, CtrlCKeepsWhatIsThere) {
  const auto program = StartSlowPull();
  program->Interrupt();
  const Finished stopped = program->Wait();
  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_TRUE(stopped.err.contains("moestro pull o/large")) << stopped.err;
  EXPECT_TRUE(Run({"list"}).out.contains("not whole yet"));
  ExpectRestIsFetched();
}

TEST_F(KilledPullTest, AKilledPullIsGoneOnWith) {
  const auto program = StartSlowPull();
  kill(program->id(), SIGKILL);
  EXPECT_EQ(program->Wait().exit_code, -1);
  ExpectRestIsFetched();
}

}  // namespace
}  // namespace moestro
