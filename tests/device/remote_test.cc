// SPDX-License-Identifier: MIT
// Experts on remote hosts: ggml's own server on the loopback, in one process or two. A text is the
// same to the bit as without them, whatever happens to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/number.h"
#include "decide/devices/latency_model.h"
#include "engine/append.h"
#include "learned/machine_files.h"
#include "native/native_engine.h"
#include "remote/worker.h"
#include "tests/support/damage_testing.h"
#include "tests/support/decode_testing.h"
#include "tests/support/rpc_server_testing.h"
#include "tests/support/socket_client_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

using testing::RpcServer;

class RemoteTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RpcServer::Program().empty()) return;
    GTEST_SKIP() << "no ggml-rpc-server; 'scripts/setup.sh device' installs it";
  }

  std::string Model(const std::string& arch, const std::string& type) {
    return WriteTinyModel(
        folder_.path(),
        {.arch = arch, .type = type, .layers = 3, .experts = 12, .used = 3, .ff = 256});
  }
  static EngineOptions Here(double percent) {
    EngineOptions options;
    options.ctx = 128;
    options.threads = 2;
    options.sequences = 12;
    options.cache = CacheSize{.percent = percent};
    options.device.name = "cpu";
    options.own_kernels = false;
    return options;
  }
  // With the servers as hosts, which compute whatever they have.
  EngineOptions With(const EngineOptions& here, uint64_t bytes) const {
    EngineOptions options = here;
    options.own_kernels = true;  // exact hosts turn them off
    options.device.remote.program = MOESTRO_BINARY;
    options.device.remote.is_always = true;
    for (const auto& server : servers_) {
      options.device.remote.hosts.push_back(
          {.host = "127.0.0.1", .port = server->port(), .bytes = bytes});
    }
    return options;
  }
  void Serve(size_t servers) {
    while (servers_.size() < servers) servers_.push_back(std::make_unique<RpcServer>());
  }
  static Decoded Decode(const Result<std::unique_ptr<NativeEngine>>& engine, uint32_t rows,
                        uint32_t steps = 6) {
    GivenTokens given{.prompts = {}, .steps = steps, .prompt_seed = 50, .seed = 9};
    for (uint32_t s = 0; s < rows; ++s) given.prompts.push_back(2 + s % 4);
    return DecodeGiven(engine, given);
  }
  static void ExpectEqual(const Decoded& a, const Decoded& b) {
    ASSERT_TRUE(a.status) << a.status.error().message;
    ASSERT_TRUE(b.status) << b.status.error().message;
    ASSERT_FALSE(a.logits.empty());
    EXPECT_TRUE(a.logits == b.logits);
  }
  // Until every host has what it will get, and the engine knows.
  static void Land(NativeEngine& engine) {
    engine.AwaitHosts();
    Sequence sequence = engine.NewSequence();
    const Status stepped =
        engine.Step(RowsOf(sequence, std::vector<Token>{1, 2}, RowKind::kPrompt));
    ASSERT_TRUE(stepped) << stepped.error().message;
    EXPECT_GT(engine.learned().device.on_device, 0U);
  }
  // Takes connections, and says one thing or nothing.
  class Listener {
   public:
    explicit Listener(const std::string& says = "") : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t bytes = sizeof(address);
      EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
      listen(fd_, 8);
      getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
      port_ = ntohs(address.sin_port);
      if (says.empty()) return;
      thread_ = std::thread([this, says] {
        for (int client = accept(fd_, nullptr, nullptr); client >= 0;
             client = accept(fd_, nullptr, nullptr)) {
          send(client, says.data(), says.size(), MSG_NOSIGNAL);
          shutdown(client, SHUT_WR);
          close(client);
        }
      });
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() {
      shutdown(fd_, SHUT_RDWR);
      if (thread_.joinable()) thread_.join();
      close(fd_);
    }
    uint16_t port() const { return port_; }

   private:
    int fd_;
    uint16_t port_ = 0;
    std::thread thread_;
  };

  TempFolder folder_;
  std::vector<std::unique_ptr<RpcServer>> servers_;
};

TEST_F(RemoteTest, TheSameBitsOverBudgetsAndHosts) {
  Serve(2);
  for (const std::string type : {"Q4_0", "Q8_0", "Q4_K", "F16"}) {
    const std::string model = Model("qwen3moe", type);
    for (const double percent : {30.0, 100.0}) {
      const EngineOptions here = Here(percent);
      const Decoded alone = Decode(NativeEngine::Open(model, here), 3);
      for (const uint64_t bytes : {uint64_t{26} * kMiB, uint64_t{64} * kMiB}) {
        SCOPED_TRACE(type + ", " + std::to_string(percent) + ", " + std::to_string(bytes));
        const auto engine = NativeEngine::Open(model, With(here, bytes));
        ASSERT_TRUE(engine) << engine.error().message;
        Land(**engine);
        ExpectEqual(Decode(engine, 3), alone);
        EXPECT_EQ((*engine)->learned().device.failures, 0U);
        EXPECT_EQ((*engine)->facts().memory.devices.size(), 2U);
      }
    }
  }
}

// Hosts with nothing, with words that are none, and ones that are never reached.
TEST_F(RemoteTest, AHostThatIsOfNoUseIsLeftOutWithASentence) {
  const std::string model = Model("olmoe", "Q8_0");
  const EngineOptions here = Here(50.0);
  const Decoded alone = Decode(NativeEngine::Open(model, here), 2);
  const auto expect_left_out = [&](const RemoteHost& host, const std::string& why) {
    SCOPED_TRACE(why);
    EngineOptions options = With(here, 0);
    options.device.remote.hosts = {host};
    const auto start = std::chrono::steady_clock::now();
    ::testing::internal::CaptureStderr();
    const auto engine = NativeEngine::Open(model, options);
    const std::string said = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_TRUE(said.contains(why)) << said;
    EXPECT_TRUE(said.contains(host.address())) << said;
    EXPECT_TRUE((*engine)->facts().memory.devices.empty());
    ExpectEqual(Decode(engine, 2), alone);
  };
  const uint16_t nothing = SocketClient::FreePort();
  expect_left_out({.host = "127.0.0.1", .port = nothing}, "Connection refused");
  expect_left_out({.host = "no.such.host.invalid", .port = 1}, "no.such.host.invalid");

  Serve(1);
  const RemoteHost host{.host = "127.0.0.1", .port = servers_[0]->port()};
  RemoteHost large = host;
  large.bytes = uint64_t{1} << 50U;
  expect_left_out(large, "are more than the");
  RemoteHost small = host;
  small.bytes = kMiB;
  expect_left_out(small, "hold no expert");
  servers_[0]->Stop();
  expect_left_out(host, "has not answered for 2 s");
  servers_[0]->GoOn();
  const Listener deaf;
  expect_left_out({.host = "127.0.0.1", .port = deaf.port()}, "has not answered for 2 s");
  const Listener rude("HTTP/1.1 400 Bad Request\r\n\r\n");
  expect_left_out({.host = "127.0.0.1", .port = rude.port()}, "127.0.0.1");
}

// A worker whose process ends at its start, as by a library that is missing, is not waited for, and
// its last words are the reason.
TEST_F(RemoteTest, AWorkerThatEndsAtItsStartTellsItsLastWords) {
  const std::string program = folder_.File("worker");
  std::ofstream(program) << "#!/bin/sh\necho 'worker: no such library' >&2\nexit 127\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  constexpr double kNever = 1e5;  // a wait that long is a hang of this test
  const auto started = WorkerProcess::Start(program, "a-host:1", {.shape = {.n_embd = 64}},
                                            {.reach_seconds = kNever, .reply_seconds = kNever});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Errc::kDevice);
  EXPECT_THAT(started.error().message, ::testing::HasSubstr("no such library"));
}

TEST_F(RemoteTest, ASecondClientGivesUpAndTheFirstGoesOn) {
  Serve(1);
  const std::string model = Model("olmoe", "Q8_0");
  const EngineOptions options = With(Here(50.0), 64 * kMiB);
  const auto first = NativeEngine::Open(model, options);
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_EQ((*first)->facts().memory.devices.size(), 1U);
  ::testing::internal::CaptureStderr();
  const auto second = NativeEngine::Open(model, options);
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(said.contains("has not answered for 2 s")) << said;
  EXPECT_TRUE((*second)->facts().memory.devices.empty());
  Land(**first);
  const Decoded alone = Decode(NativeEngine::Open(model, Here(50.0)), 2);
  ExpectEqual(Decode(first, 2), alone);
  ExpectEqual(Decode(second, 2), alone);
}

// While experts are on their way, and between two steps.
TEST_F(RemoteTest, AServerThatIsKilledCostsTimeAndNothingElse) {
  const std::string model = Model("qwen3moe", "Q8_0");
  const Decoded alone = Decode(NativeEngine::Open(model, Here(30.0)), 2);
  for (const bool has_landed : {false, true}) {
    SCOPED_TRACE(has_landed);
    servers_.clear();
    Serve(2);
    const auto engine = NativeEngine::Open(model, With(Here(30.0), 64 * kMiB));
    ASSERT_TRUE(engine) << engine.error().message;
    if (has_landed) Land(**engine);
    servers_[0]->Kill();
    ::testing::internal::CaptureStderr();
    ExpectEqual(Decode(engine, 2), alone);
    const std::string said = ::testing::internal::GetCapturedStderr();
    if (has_landed) {
      EXPECT_TRUE(said.contains(servers_[0]->address())) << said;
    }
    EXPECT_FALSE(said.contains(servers_[1]->address() + ":")) << said;
    ExpectEqual(Decode(engine, 2), alone);
    servers_[1]->Kill();
    ExpectEqual(Decode(engine, 2), alone);
  }
}

TEST_F(RemoteTest, AHostThatComesBackIsUsedAgain) {
  Serve(1);
  const std::string model = Model("qwen3moe", "Q8_0");
  const auto engine = NativeEngine::Open(model, With(Here(30.0), 64 * kMiB));
  ASSERT_TRUE(engine) << engine.error().message;
  Land(**engine);
  const uint16_t port = servers_[0]->port();
  servers_.clear();
  const Decoded alone = Decode(NativeEngine::Open(model, Here(30.0)), 2);
  ExpectEqual(Decode(engine, 2), alone);
  servers_.push_back(std::make_unique<RpcServer>(port));
  const uint64_t before = (*engine)->learned().device.on_device;
  for (int i = 0; i < 200 && (*engine)->learned().device.on_device == before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ExpectEqual(Decode(engine, 1, 1), Decode(engine, 1, 1));
  }
  EXPECT_GT((*engine)->learned().device.on_device, before);
  ExpectEqual(Decode(engine, 2), alone);
}

TEST_F(RemoteTest, AStopWhileExpertsAreOnTheirWayHoldsNoStepUp) {
  Serve(1);
  const std::string model = Model("qwen3moe", "Q8_0");
  const Decoded alone = Decode(NativeEngine::Open(model, Here(30.0)), 2);
  const auto engine = NativeEngine::Open(model, With(Here(30.0), 64 * kMiB));
  ASSERT_TRUE(engine) << engine.error().message;
  servers_[0]->Stop();
  const auto start = std::chrono::steady_clock::now();
  ExpectEqual(Decode(engine, 2), alone);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  servers_[0]->GoOn();
}

// By a file of costs, so that a busy machine decides nothing.
TEST_F(RemoteTest, AHostThatDoesNotPayIsLeftUnusedAndTheTextSaysWhy) {
  Serve(1);
  const std::string model = Model("olmoe", "Q8_0");
  EngineOptions options = With(Here(100.0), 64 * kMiB);
  options.device.remote.is_always = false;
  const std::string costs = folder_.path() / "costs.json";
  options.device.latency_model = costs;
  const Decoded alone = Decode(NativeEngine::Open(model, Here(100.0)), 2);
  for (const bool pays : {false, true}) {
    SCOPED_TRACE(pays);
    LatencyModel model_of_costs{.host = {.per_byte = pays ? 1e-6 : 1e-10},
                                .disk = {.per_byte = 1e-9},
                                .devices = {{.compute = {.per_byte = 1e-10},
                                             .copy = {.per_byte = 1e-8},
                                             .launch = pays ? 1e-6 : 0.1}}};
    ASSERT_TRUE(WriteLatency(
        costs, {.machine = "test", .devices = {servers_[0]->address()}, .model = model_of_costs}));
    ::testing::internal::CaptureStderr();
    const auto engine = NativeEngine::Open(model, options);
    const std::string said = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ(said.contains("--remote-always"), !pays) << said;
    EXPECT_EQ(said.contains(" ms with " + servers_[0]->address()), !pays) << said;
    ExpectEqual(Decode(engine, 2), alone);
    EXPECT_EQ((*engine)->learned().device.on_device > 0, pays);
  }
}

TEST_F(RemoteTest, AStoppedServerHoldsNoStepUpForLong) {
  Serve(1);
  const std::string model = Model("qwen3moe", "Q8_0");
  const Decoded alone = Decode(NativeEngine::Open(model, Here(30.0)), 2);
  const auto engine = NativeEngine::Open(model, With(Here(30.0), 64 * kMiB));
  ASSERT_TRUE(engine) << engine.error().message;
  Land(**engine);
  servers_[0]->Stop();
  const auto start = std::chrono::steady_clock::now();
  ::testing::internal::CaptureStderr();
  ExpectEqual(Decode(engine, 2), alone);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_TRUE(said.contains("has not answered for 4 s")) << said;
  servers_[0]->GoOn();
}

TEST_F(RemoteTest, AHostOfNoPrivateNetworkNeedsAWord) {
  EngineOptions options = With(Here(50.0), 0);
  options.device.remote.hosts = {{.host = "198.51.100.7", .port = 50052}};
  const auto engine = NativeEngine::Open(Model("olmoe", "Q8_0"), options);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Errc::kUsage);
  EXPECT_TRUE(engine.error().message.contains("--remote-insecure")) << engine.error().message;
}

// As with a GPU: near, and not equal.
TEST_F(RemoteTest, WithOurKernelsHereResultsAreNear) {
  Serve(1);
  const std::string model = Model("qwen3moe", "Q8_0");
  EngineOptions here = Here(100.0);
  here.own_kernels = true;
  EngineOptions options = With(here, 64 * kMiB);
  options.device.remote.is_inexact = true;
  const auto engine = NativeEngine::Open(model, options);
  ASSERT_TRUE(engine) << engine.error().message;
  Land(**engine);
  const Decoded a = Decode(engine, 2);
  const Decoded b = Decode(NativeEngine::Open(model, here), 2);
  ASSERT_EQ(a.logits.size(), b.logits.size());
  double worst = 0.0;
  for (size_t i = 0; i < a.logits.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a.logits[i]) - b.logits[i]));
  }
  EXPECT_LT(worst, 0.05);
  EXPECT_LT((*engine)->facts().memory.devices.front().difference, 1e-3);
}

TEST_F(RemoteTest, AServerTakesNoMoreThanItMay) {
  Serve(1);
  const uint64_t before = servers_[0]->Peak();
  const auto engine = NativeEngine::Open(Model("qwen3moe", "F16"), With(Here(30.0), 48 * kMiB));
  ASSERT_TRUE(engine) << engine.error().message;
  Land(**engine);
  EXPECT_LE(servers_[0]->Peak() - before, 48 * kMiB);
}

// The CPU makes no numbers of these rows either.
TEST_F(RemoteTest, NoNumbersOfADamagedModelAreNotTheHosts) {
  Serve(1);
  const std::string model = Model("qwen3moe", "Q8_0");
  FillWithNan(model, "blk.1.ffn_down_exps.weight");
  const auto engine = NativeEngine::Open(model, With(Here(30.0), 64 * kMiB));
  ASSERT_TRUE(engine) << engine.error().message;
  (*engine)->AwaitHosts();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    Sequence sequence = (*engine)->NewSequence();
    const Status stepped =
        (*engine)->Step(RowsOf(sequence, std::vector<Token>{1, 2, 3, 4}, RowKind::kPrompt));
    ASSERT_FALSE(stepped);
    EXPECT_TRUE(stepped.error().message.contains("NaN")) << stepped.error().message;
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_FALSE(said.contains("left out")) << said;
  EXPECT_GT((*engine)->learned().device.on_device, 0U);
}

// A host that computes as this machine does at the start, and otherwise later.
class LyingHostTest : public RemoteTest {
 protected:
  void TearDown() override {
    unsetenv("MOESTRO_TEST_WORKER");
    unsetenv("MOESTRO_TEST_LIE");
  }
  // `lie`: see lying_worker_main.cc. By the costs of a launch the known row rides along in every
  // eighth, or with 10 s in every hundredth.
  Result<std::unique_ptr<NativeEngine>> OpenWith(const std::string& model, const std::string& lie,
                                                 double launch = 1e-6) {
    setenv("MOESTRO_TEST_WORKER", MOESTRO_BINARY, 1);
    setenv("MOESTRO_TEST_LIE", lie.c_str(), 1);
    EngineOptions options = With(Here(30.0), 64 * kMiB);
    options.device.remote.program = MOESTRO_LYING_WORKER;
    options.device.latency_model = folder_.File("costs.json");
    LatencyFile costs{.machine = "test",
                      .devices = {},
                      .model = {.host = {.per_byte = 1e-6}, .disk = {.per_byte = 1e-9}}};
    for (const auto& server : servers_) {
      costs.devices.push_back(server->address());
      costs.model.devices.push_back(
          {.compute = {.per_byte = 1e-10}, .copy = {.per_byte = 1e-8}, .launch = launch});
    }
    EXPECT_TRUE(WriteLatency(options.device.latency_model, costs));
    return NativeEngine::Open(model, options);
  }
  // Steps until the host is left out; how many.
  static int StepsUntilLeftOut(NativeEngine& engine, Sequence& sequence) {
    int without = 0;
    for (int step = 0; step < kMostSteps; ++step) {
      if (sequence.position() > 100) sequence.CutBack(0);
      const uint64_t before = engine.learned().device.on_device;
      const std::vector<Token> one = {static_cast<Token>(step % 97)};
      EXPECT_TRUE(engine.Step(RowsOf(sequence, one, RowKind::kDecode)));
      without = engine.learned().device.on_device == before ? without + 1 : 0;
      if (without == 5) return step;
    }
    return kMostSteps;
  }
  static constexpr int kMostSteps = 400;
  // What is known of the sequence's tokens gives the same logits as on an engine without hosts.
  static void ExpectSound(NativeEngine& engine, Sequence& sequence, NativeEngine& alone) {
    Sequence other = alone.NewSequence();
    const std::vector<Token> tokens(sequence.tokens().begin(), sequence.tokens().end());
    ASSERT_TRUE(AppendAll(alone, other, tokens));
    const Token next = 7;
    const auto logits = Append(engine, sequence, {&next, 1});
    ASSERT_TRUE(logits) << logits.error().message;
    const auto expected = Append(alone, other, {&next, 1});
    ASSERT_TRUE(expected) << expected.error().message;
    EXPECT_TRUE(std::ranges::equal(*logits, *expected));
  }
};

TEST_F(LyingHostTest, AWrongKnownRowLeavesTheHostOutAndItsResultsAreComputedAgain) {
  Serve(1);
  const std::string model = Model("qwen3moe", "Q8_0");
  const auto alone = NativeEngine::Open(model, Here(30.0));
  ASSERT_TRUE(alone) << alone.error().message;
  for (const std::string lie : {"bit", "swap", "stale", "nan"}) {
    SCOPED_TRACE(lie);
    const auto engine = OpenWith(model, lie + " 160 all");
    ASSERT_TRUE(engine) << engine.error().message;
    ASSERT_EQ((*engine)->facts().memory.devices.size(), 1U);
    Land(**engine);
    Sequence sequence = (*engine)->NewSequence();
    ::testing::internal::CaptureStderr();
    const int steps = StepsUntilLeftOut(**engine, sequence);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_LT(steps, kMostSteps);
    const char* const why = lie == "nan" ? "no numbers" : "known row otherwise";
    EXPECT_TRUE(said.contains(why)) << said;
    EXPECT_TRUE(said.contains(servers_[0]->address())) << said;
    EXPECT_TRUE(said.contains("computed again")) << said;
    ExpectSound(**engine, sequence, **alone);
  }
}

// What they remember beside keys and values is computed again, too: states, and windows.
TEST_F(LyingHostTest, StatesAndWindowsAreComputedAgain) {
  Serve(1);
  for (const std::string arch : {"qwen3next", "exaone-moe"}) {
    SCOPED_TRACE(arch);
    const std::string model = Model(arch, "Q8_0");
    const auto alone = NativeEngine::Open(model, Here(30.0));
    ASSERT_TRUE(alone) << alone.error().message;
    const auto engine = OpenWith(model, "bit 160 all");
    ASSERT_TRUE(engine) << engine.error().message;
    Land(**engine);
    Sequence sequence = (*engine)->NewSequence();
    Sequence resting = (*engine)->NewSequence();
    ASSERT_TRUE(AppendAll(**engine, resting, std::vector<Token>(40, 5)));
    EXPECT_LT(StepsUntilLeftOut(**engine, sequence), kMostSteps);
    ExpectSound(**engine, sequence, **alone);
    ExpectSound(**engine, resting, **alone);
  }
}

// Steps between a prompt's layers go on, and the prompt's own computes all texts again.
TEST_F(LyingHostTest, FoundBetweenAPromptsLayers) {
  Serve(1);
  const std::string model = Model("qwen3moe", "Q8_0");
  const auto alone = NativeEngine::Open(model, Here(30.0));
  const auto opened = OpenWith(model, "bit 160 all");
  ASSERT_TRUE(opened) << opened.error().message;
  NativeEngine& engine = **opened;
  Land(engine);
  Sequence prompt = engine.NewSequence();
  Sequence other = engine.NewSequence();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 30; ++i) {
    prompt.CutBack(0);
    const auto run =
        engine.Begin(RowsOf(prompt, std::vector<Token>{1, 2, 3, 4, 5, 6}, RowKind::kPrompt), {});
    ASSERT_TRUE(run) << run.error().message;
    for (Result<bool> has_ended = false; !*has_ended;) {
      ASSERT_TRUE(engine.Step(RowsOf(other, std::vector<Token>{9}, RowKind::kDecode)));
      has_ended = (*run)->Advance();
      ASSERT_TRUE(has_ended) << has_ended.error().message;
    }
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.contains("known row otherwise")) << said;
  EXPECT_EQ(other.position(), 90U);
  ExpectSound(engine, prompt, **alone);
  ExpectSound(engine, other, **alone);
}

TEST_F(LyingHostTest, OfTwoHostsTheOneThatLiesIsLeftOutAndTheOtherGoesOn) {
  Serve(2);
  const std::string model = Model("qwen3moe", "Q8_0");
  const auto alone = NativeEngine::Open(model, Here(30.0));
  const auto engine = OpenWith(model, "bit 160 all " + servers_[1]->address());
  ASSERT_TRUE(engine) << engine.error().message;
  ASSERT_EQ((*engine)->facts().memory.devices.size(), 2U);
  Land(**engine);
  const auto ran_on = [&](size_t host) { return (*engine)->learned().device.each[host].on_device; };
  Sequence sequence = (*engine)->NewSequence();
  ::testing::internal::CaptureStderr();
  int without = 0;  // steps in which the second host had no expert
  uint64_t first_had = 0;
  for (int step = 0; step < kMostSteps && without < 5; ++step) {
    if (sequence.position() > 100) sequence.CutBack(0);
    if (without == 0) first_had = ran_on(0);
    const uint64_t before = ran_on(1);
    const std::vector<Token> one = {static_cast<Token>(step % 97)};
    ASSERT_TRUE((*engine)->Step(RowsOf(sequence, one, RowKind::kDecode)));
    without = ran_on(1) == before ? without + 1 : 0;
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(without, 5);
  EXPECT_GT(ran_on(0), first_had);
  EXPECT_TRUE(said.contains(servers_[1]->address())) << said;
  EXPECT_FALSE(said.contains(servers_[0]->address())) << said;
  ExpectSound(**engine, sequence, **alone);
}

// One damaged slot is found once its expert's turn comes.
TEST_F(LyingHostTest, OneWrongSlotIsFound) {
  Serve(1);
  const std::string model = Model("qwen3moe", "Q8_0");
  const auto alone = NativeEngine::Open(model, Here(30.0));
  const auto engine = OpenWith(model, "bit 160 one");
  ASSERT_TRUE(engine) << engine.error().message;
  Land(**engine);
  Sequence sequence = (*engine)->NewSequence();
  EXPECT_LT(StepsUntilLeftOut(**engine, sequence), kMostSteps);
  ExpectSound(**engine, sequence, **alone);
}

// Nothing that a wrong host computed is kept on disk.
TEST_F(LyingHostTest, BeforeASequenceIsKeptTheHostIsChecked) {
  Serve(1);
  const std::string model = Model("qwen3moe", "Q8_0");
  const auto alone = NativeEngine::Open(model, Here(30.0));
  const auto engine = OpenWith(model, "bit 30 all", 10.0);
  ASSERT_TRUE(engine) << engine.error().message;
  Land(**engine);
  Sequence sequence = (*engine)->NewSequence();
  ASSERT_TRUE(AppendAll(**engine, sequence, std::vector<Token>{1, 2, 3, 4, 5, 6, 7, 8}));
  for (int i = 0; i < 12; ++i) {
    const Token token = 3 + i;
    ASSERT_TRUE(Append(**engine, sequence, {&token, 1}));
  }
  const std::string path = folder_.File("kept.seq");
  ::testing::internal::CaptureStderr();
  const Status saved = (*engine)->SaveSequence(sequence, "", path);
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_TRUE(said.contains("known row otherwise")) << said;
  auto restored = (*engine)->RestoreSequence(path);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(restored->sequence.position(), 20U);
  ExpectSound(**engine, restored->sequence, **alone);
  ExpectSound(**engine, sequence, **alone);
}

}  // namespace
}  // namespace moestro
