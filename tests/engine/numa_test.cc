// SPDX-License-Identifier: MIT
// An engine on a machine of several memory nodes, which is made up: results are the same whatever
// the machine is, and whatever it refuses.
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/numa_machine_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

class NumaTest : public ::testing::Test {
 protected:
  NumaTest()
      : model_(WriteTinyModel(folder_.path(),
                              {.arch = "qwen3moe", .type = "Q8_0", .embd = 512, .ff = 512})) {}

  EngineOptions Options() const {
    EngineOptions options;
    options.ctx = 64;
    options.threads = 2;
    options.cache = CacheSize{.percent = 50.0};
    options.numa_machine = machine_;
    return options;
  }
  // The logits of some tokens.
  std::vector<float> Run(const EngineOptions& options) {
    const auto engine = NativeEngine::Open(model_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    if (!engine) return {};
    description_ = (*engine)->facts().description;
    Sequence sequence = (*engine)->NewSequence();
    const auto logits = Append(**engine, sequence, SeededTokens(12, 512, 3));
    EXPECT_TRUE(logits) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }

  TempFolder folder_;
  std::string model_;
  std::shared_ptr<NotedNumaMachine> machine_ = std::make_shared<NotedNumaMachine>(2);
  std::string description_;
};

TEST_F(NumaTest, OnOneNodeNothingHappens) {
  machine_ = std::make_shared<NotedNumaMachine>(1);
  EXPECT_FALSE(Run(Options()).empty());
  EXPECT_GT(machine_->asked, 0);
  EXPECT_EQ(machine_->asked_for_pages, 0);
  EXPECT_EQ(machine_->calls, 0);
  EXPECT_FALSE(description_.contains("NUMA"));
}

TEST_F(NumaTest, SwitchedOffNothingIsAsked) {
  EngineOptions options = Options();
  options.numa = "off";
  EXPECT_FALSE(Run(options).empty());
  EXPECT_EQ(machine_->asked, 0);
  EXPECT_EQ(machine_->calls, 0);
  EXPECT_FALSE(description_.contains("NUMA"));
}

TEST_F(NumaTest, LogitsAreThoseOfOneNode) {
  EngineOptions off = Options();
  off.numa = "off";
  const std::vector<float> expected = Run(off);
  EXPECT_EQ(Run(Options()), expected);
  EXPECT_TRUE(description_.contains("2 NUMA nodes: 1 + 1 threads, each beside its rows"));
  EXPECT_FALSE(machine_->touched.empty());
  EXPECT_FALSE(machine_->small.empty());
  for (const NotedNumaMachine::Touched& t : machine_->touched) EXPECT_EQ(t.nodes, t.cpus);
  for (const NotedNumaMachine::Thread& thread : machine_->threads()) {
    EXPECT_EQ(thread.cpus.size(), 2U);
    EXPECT_EQ(thread.how, NewPages::kUsual);
  }
}

TEST_F(NumaTest, MoreNodesThanThreadsAreInterleaved) {
  machine_ = std::make_shared<NotedNumaMachine>(4);
  EXPECT_FALSE(Run(Options()).empty());
  EXPECT_TRUE(description_.contains("4 NUMA nodes: memory interleaved")) << description_;
  EXPECT_TRUE(machine_->touched.empty());
}

TEST_F(NumaTest, WhatTheKernelRefusesChangesNothing) {
  EngineOptions off = Options();
  off.numa = "off";
  const std::vector<float> expected = Run(off);
  using Fault = NotedNumaMachine::Fault;
  for (const Fault& fault :
       {Fault{.run_on = EPERM}, Fault{.take_pages = ENOSYS}, Fault{.keep_small = EINVAL},
        Fault{.run_on = EPERM, .take_pages = EPERM, .keep_small = ENOSYS}}) {
    machine_->fault = fault;
    EXPECT_EQ(Run(Options()), expected);
  }
}

}  // namespace
}  // namespace moestro
