// SPDX-License-Identifier: MIT
// The threads on which the hosted engine computes, on a machine with two kinds of cores.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "compute/numa_machine.h"
#include "engine/append.h"
#include "load/open_engine.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using Cpus = std::vector<uint32_t>;

// Four little CPUs and two big ones; notes which threads are moved, and moves none.
class BoardMachine final : public NumaMachine {
 public:
  NumaTopology topology() const override { return {}; }
  CpuKinds cpus() const override { return {.all = {0, 1, 2, 3, 4, 5}, .fast = {4, 5}}; }
  bool has_chosen_pages() const override { return false; }
  int RunOn(std::span<const uint32_t> cpus) override {
    const std::lock_guard lock(mutex_);
    threads_[::gettid()].assign_range(cpus);
    return 0;
  }
  int TakePages(NewPages /*how*/, std::span<const uint32_t> /*nodes*/) override { return 0; }
  int KeepSmall(std::span<std::byte> /*memory*/) override { return 0; }
  int Touch(std::span<std::byte> /*memory*/) override { return 0; }

  std::map<pid_t, Cpus> threads() {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  std::mutex mutex_;
  std::map<pid_t, Cpus> threads_;  // the CPUs that each was moved to last
};

uint64_t NanosecondsOf(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/schedstat");
  uint64_t ran = 0;
  stat >> ran;
  return ran;
}

TEST(HostedThreads, ThoseOfLibllamaStayOnTheFastCores) {
  const TempFolder folder;
  const std::string model = WriteZooModel(folder.path(), "dots1", {.context = 256});
  const auto machine = std::make_shared<BoardMachine>();
  EngineOptions options;
  options.engine = "hosted";
  options.threads = 2;
  options.ctx = 256;
  options.numa_machine = machine;
  {
    const auto engine = OpenEngine(model, options);
    ASSERT_TRUE(engine) << engine.error().message;
    const auto moved = machine->threads();
    ASSERT_EQ(moved.size(), 2U);
    std::map<pid_t, uint64_t> before;
    for (const auto& [thread, cpus] : moved) {
      EXPECT_EQ(cpus, (Cpus{4, 5}));
      before[thread] = NanosecondsOf(thread);
    }
    Sequence sequence = (*engine)->NewSequence();
    ASSERT_TRUE(Append(**engine, sequence, std::vector<Token>(64, 7)));
    for (const auto& [thread, ran] : before) EXPECT_GT(NanosecondsOf(thread), ran);
  }
  for (const auto& [thread, cpus] : machine->threads()) EXPECT_EQ(cpus, (Cpus{0, 1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace moestro
