// SPDX-License-Identifier: MIT
// A server of several models as a program: its answers, its budget, and what becomes of processes
// that are killed or stopped.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/serve/serve_house_testing.h"

namespace moestro::testing {
namespace {

using namespace std::chrono_literals;

TEST_F(HouseTest, ThreeModelsInTheRoomOfTwoAnswerAsServersOfTheirOwn) {
  std::map<std::string, std::string> alone;
  for (const std::string& name : kNames) {
    Serve({FileOf(name), "--ctx", "256"});
    alone[name] = TextOf(AskFor(name));
    EXPECT_FALSE(alone[name].empty()) << name;
    EXPECT_EQ(End().exit_code, 0);
  }
  const uint64_t ram = RoomForTwo();
  Serve({"--models", Models(), "--ram", std::to_string(ram), "--ctx", "256"});
  std::atomic<bool> is_over = false;
  uint64_t peak = 0;
  std::thread watcher([&] {
    while (!is_over) {
      peak = std::max(peak, ResidentOf(program_->id()));
      std::this_thread::sleep_for(50ms);
    }
  });
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (size_t client = 0; client < 3; ++client) {
    clients.emplace_back([&, client] {
      for (size_t i = 0; i < 4; ++i) {
        const std::string& name = kNames[(client + i) % kNames.size()];
        const std::string reply = AskUntilRoom(name);
        EXPECT_EQ(TextOf(reply), alone[name]) << name << reply;
        ++answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  is_over = true;
  watcher.join();
  EXPECT_EQ(answered, 12);
  EXPECT_LE(peak, ram);
  EXPECT_GE(Figure("house_loads_total"), 3.0);
  EXPECT_GE(Figure("house_ends_total") + Figure("house_shrinks_total"), 1.0);
  EXPECT_EQ(Figure("house_deaths_total"), 0.0);
  EXPECT_LE(Figure("house_held_bytes"), Figure("house_budget_bytes"));
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(ProcessesBelow(program_->id()).empty());
}

// A stream of one model ends with an error event, the other model's with its own end.
TEST_F(HouseTest, AProcessThatIsKilledEndsItsOwnRequestsAlone) {
  Serve({"--models", Models(), "--ctx", "256"});
  for (const int how : {SIGKILL, SIGSTOP}) {
    for (const std::string& name : {kNames[0], kNames[1]})
      EXPECT_FALSE(TextOf(AskFor(name)).empty());
    const SocketClient hit(port_);
    const SocketClient spared(port_);
    const std::string body =
        R"(","prompt":"Once","stream":true,"max_tokens":200,"ignore_eos":true})";
    ASSERT_TRUE(hit.Send(Post("/v1/completions", R"({"model":")" + kNames[0] + body)));
    ASSERT_TRUE(spared.Send(Post("/v1/completions", R"({"model":")" + kNames[1] + body)));
    hit.ReceiveUntil("data: ");
    kill(ProcessOf(kNames[0]), how);
    const auto began = std::chrono::steady_clock::now();
    const std::string rest = hit.ReceiveAll();
    // The stream may have ended just before.
    EXPECT_TRUE(rest.contains("model_ended") || rest.contains("[DONE]")) << rest;
    std::string again;
    while (TextOf(again).empty() && std::chrono::steady_clock::now() - began < 20s) {
      again = AskFor(kNames[0]);
    }
    EXPECT_FALSE(TextOf(again).empty()) << again;
    EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
    EXPECT_TRUE(spared.ReceiveAll().contains("[DONE]"));
  }
  EXPECT_EQ(Figure("house_deaths_total"), 2.0);
  EXPECT_EQ(End().exit_code, 0);
}

// A process answers in full while the house stands still.
TEST_F(HouseTest, AStreamThatComesAtOnceIsAStream) {
  Serve({"--models", Models(), "--ctx", "256"});
  EXPECT_FALSE(TextOf(AskFor("demo")).empty());
  const pid_t worker = ProcessOf("demo");
  ASSERT_GT(worker, 0);
  kill(worker, SIGSTOP);
  const SocketClient client(port_);
  ASSERT_TRUE(client.Send(
      Post("/v1/completions", R"({"model":"demo","prompt":"Once","stream":true,"max_tokens":4})")));
  std::this_thread::sleep_for(50ms);  // less than the house's patience with a stopped process
  kill(program_->id(), SIGSTOP);
  kill(worker, SIGCONT);
  std::this_thread::sleep_for(500ms);
  kill(program_->id(), SIGCONT);
  const std::string reply = client.ReceiveAll();
  EXPECT_TRUE(reply.contains("Transfer-Encoding: chunked")) << reply;
  EXPECT_FALSE(reply.contains("Content-Length")) << reply;
  EXPECT_TRUE(reply.contains("data: [DONE]")) << reply;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(HouseTest, AFileThatIsReplacedIsReadAnew) {
  Serve({"--models", Models(), "--ctx", "256"});
  const std::string before = TextOf(AskFor("demo"));
  std::filesystem::copy_file(FileOf("hybrid"), folder_.File("new"));
  std::filesystem::rename(folder_.File("new"), FileOf("demo"));
  const std::string after = TextOf(AskUntilRoom("demo"));
  EXPECT_FALSE(after.empty());
  EXPECT_NE(after, before);
  EXPECT_EQ(after, TextOf(AskFor("hybrid")));
  std::filesystem::remove(FileOf("demo"));
  const std::string gone = AskFor("demo");
  EXPECT_TRUE(gone.starts_with("HTTP/1.1 500")) << gone;
  EXPECT_FALSE(TextOf(AskFor("hosted")).empty());
  EXPECT_EQ(End().exit_code, 0);
}

// An error does not last, although the file looks as before: a permission may have changed, or the
// machine was short of something.
TEST_F(HouseTest, AModelWhoseFileLooksAsBeforeIsLookedAtAgain) {
  const auto made = std::filesystem::last_write_time(FileOf("demo"));
  const auto write = [&](const char* first) {
    std::fstream(FileOf("demo"), std::ios::in | std::ios::out | std::ios::binary) << first;
    std::filesystem::last_write_time(FileOf("demo"), made);
  };
  write("NONE");
  Serve({"--models", Models(), "--ctx", "256"});
  EXPECT_TRUE(AskFor("demo").starts_with("HTTP/1.1 500"));
  write("GGUF");
  std::string reply;
  for (int i = 0; i < 200 && TextOf(reply).empty(); ++i) {
    std::this_thread::sleep_for(50ms);
    reply = AskFor("demo");
  }
  EXPECT_FALSE(TextOf(reply).empty()) << reply;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(HouseTest, APartThatComesLaterIsServed) {
  const std::string first = Models() + "/big-00001-of-00002.gguf";
  const std::string second = Models() + "/big-00002-of-00002.gguf";
  const Finished made =
      Program(folder_.path(),
              {.arguments =
                   {"synth",      "--shape", "olmoe-1b-7b", "--layers",   "2",
                    "--experts",  "8",       "--embd",      "256",        "--ff",
                    "64",         "--heads", "4",           "--kv-heads", "4",
                    "--head-dim", "64",      "--vocab",     kDemo,        "--type",
                    "Q8_0",       "--split", "2",           "-o",         Models() + "/big.gguf"}})
          .Wait();
  ASSERT_EQ(made.exit_code, 0) << made.err;
  ASSERT_TRUE(std::filesystem::exists(second)) << made.out;
  std::filesystem::rename(second, folder_.File("second"));
  Serve({"--models", first, "--ctx", "256"});
  EXPECT_TRUE(AskFor("big").starts_with("HTTP/1.1 500"));
  std::filesystem::rename(folder_.File("second"), second);
  const std::string reply = AskFor("big");
  EXPECT_FALSE(TextOf(reply).empty()) << reply;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(HouseTest, ReportsLoadNothing) {
  Serve({"--models", Models(), "--ctx", "256"});
  for (const char* report : {"/metrics", "/props", "/slots", "/state"}) {
    const std::string reply = Ask(port_, Get(std::string(report) + "?model=demo"));
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 503") && reply.contains("not loaded")) << reply;
  }
  EXPECT_TRUE(ProcessesBelow(program_->id()).empty() || ProcessOf("demo") < 0);
  EXPECT_FALSE(TextOf(AskFor("demo")).empty());
  EXPECT_TRUE(Ask(port_, Get("/metrics?model=demo")).starts_with("HTTP/1.1 200"));
  EXPECT_EQ(End().exit_code, 0);
}

// As when a session's own folder goes at its end.
TEST_F(HouseTest, ASocketFolderThatIsGoneIsMadeAnew) {
  Serve({"--models", Models(), "--ctx", "256"});
  EXPECT_FALSE(TextOf(AskFor("demo")).empty());
  size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    if (!entry.path().filename().string().starts_with("moestro-")) continue;
    std::filesystem::remove_all(entry.path());
    ++folders;
  }
  EXPECT_EQ(folders, 1U);
  const std::string other = AskFor("hybrid");
  EXPECT_FALSE(TextOf(other).empty()) << other;
  std::string again;
  for (int i = 0; i < 200 && TextOf(again).empty(); ++i) {
    again = AskFor("demo");
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_FALSE(TextOf(again).empty()) << again;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(HouseTest, AModelsOwnLimitBelowItsNeedIsSaid) {
  Serve({"--models", Models(), "--ctx", "256", "--for", "demo:ram=1M"});
  const std::string reply = AskFor("demo");
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 500") && reply.contains("limit of 1.0 MiB")) << reply;
  EXPECT_FALSE(TextOf(AskFor("hybrid")).empty());
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(HouseTest, ModelsAreListedLoadedAndUnloaded) {
  std::ofstream(Models() + "/broken.gguf") << "GGUF, but not for long";
  Serve({"--models", Models(), "--ctx", "256"});
  const std::string list = AwaitList(4);
  for (const std::string& name : kNames)
    EXPECT_TRUE(list.contains("\"id\":\"" + name + '"')) << list;
  EXPECT_TRUE(list.contains(R"("id":"broken")")) << list;
  EXPECT_TRUE(list.contains(R"("loaded":false)")) << list;
  EXPECT_FALSE(list.contains(R"("loaded":true)")) << list;
  EXPECT_FALSE(Ask(port_, Get("/api/tags")).contains("broken"));
  EXPECT_TRUE(Ask(port_, Get("/api/ps")).contains(R"("models":[])"));
  EXPECT_TRUE(
      Ask(port_, Post("/api/show", R"({"model":"hybrid:latest"})")).contains("capabilities"));
  const std::string broken = AskFor("broken");
  EXPECT_TRUE(broken.starts_with("HTTP/1.1 500")) << broken;
  EXPECT_TRUE(Ask(port_, Post("/models/load", R"({"model":"demo"})")).contains(R"("loaded":true)"));
  EXPECT_TRUE(Ask(port_, Get("/v1/models/demo")).contains(R"("loaded":true)"));
  EXPECT_TRUE(Ask(port_, Get("/api/ps")).contains(R"("model":"demo")"));
  EXPECT_TRUE(Ask(port_, Get("/state")).starts_with("HTTP/1.1 200"));
  Ask(port_, Post("/models/unload", R"({"model":"demo"})"));
  EXPECT_FALSE(TextOf(AskFor("hybrid")).empty());
  const std::string unloaded =
      Ask(port_, Post("/api/generate", R"({"model":"hybrid","keep_alive":0})"));
  EXPECT_TRUE(unloaded.contains(R"("done_reason":"unload")")) << unloaded;
  for (int i = 0; i < 200 && !ProcessesBelow(program_->id()).empty(); ++i) {
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_TRUE(ProcessesBelow(program_->id()).empty());
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(HouseTest, RequestsThatNameNoModelAreRefused) {
  Serve({"--models", Models()});
  const auto ask = [&](const std::string& body) {
    return Ask(port_, Post("/v1/completions", body));
  };
  const std::string none = ask(R"({"prompt":"a"})");
  EXPECT_TRUE(none.starts_with("HTTP/1.1 400") && none.contains("demo, hosted, hybrid")) << none;
  const std::string near = ask(R"({"model":"demp","prompt":"a"})");
  EXPECT_TRUE(near.starts_with("HTTP/1.1 404") && near.contains("nearest: demo")) << near;
  EXPECT_TRUE(ask(R"({"model":"../demo"})").starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(ask(R"({"model":")" + std::string(1 << 20, 'x') + "\"}").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(ask("no JSON").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(ask(R"({"model":"demo","prompt":5})").starts_with("HTTP/1.1 400"));
  EXPECT_TRUE(Ask(port_, Get("/v1/chat/completions")).starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(Ask(port_, Get("/nothing")).starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(Ask(port_, Post("/api/pull", "{}")).starts_with("HTTP/1.1 501"));
  const std::string large = R"({"model":"demo","prompt":")" + std::string(8 << 20, 'a') + "\"}";
  EXPECT_TRUE(ask(large).starts_with("HTTP/1.1 400")) << "more than the context";
  EXPECT_EQ(End().exit_code, 0);
}

// A stream whose client has left is withdrawn, so the model may be unloaded.
TEST_F(HouseTest, AClientThatLeavesFreesTheModel) {
  Serve({"--models", Models(), "--ctx", "256"});
  {
    const SocketClient client(port_);
    ASSERT_TRUE(client.Send(Post("/v1/completions",
                                 R"({"model":"demo","prompt":"Once","stream":true,"n":8,)"
                                 R"("max_tokens":200,"ignore_eos":true})")));
    client.ReceiveUntil("data: ");
  }
  std::string unloaded;
  for (int i = 0; i < 100 && !unloaded.starts_with("HTTP/1.1 200"); ++i) {
    unloaded = Ask(port_, Post("/models/unload", R"({"model":"demo"})"));
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_TRUE(unloaded.starts_with("HTTP/1.1 200")) << unloaded;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(HouseTest, NoProcessOutlivesAServerThatIsKilled) {
  Serve({"--models", Models(), "--ctx", "256"});
  EXPECT_FALSE(TextOf(AskFor("demo")).empty());
  const pid_t worker = ProcessOf("demo");
  ASSERT_GT(worker, 0);
  program_.reset();  // SIGKILL
  for (int i = 0; i < 200 && IsAlive(worker); ++i) std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(IsAlive(worker));
}

TEST_F(HouseTest, KeysAreTheHousesAndEachRequestHasALineInTheLog) {
  const std::string keys = folder_.File("keys");
  std::ofstream(keys) << "secret\n";
  Serve({"--models", Models(), "--ctx", "256", "--api-key-file", keys, "--log-requests"});
  const std::string body = R"({"model":"demo","prompt":"Once","max_tokens":2,"temperature":0})";
  EXPECT_TRUE(Ask(port_, Post("/v1/completions", body)).starts_with("HTTP/1.1 401"));
  EXPECT_TRUE(Ask(port_, Get("/v1/models")).starts_with("HTTP/1.1 401"));
  const std::string key = "Authorization: Bearer secret\r\nX-Request-Id: mine\r\n";
  const std::string reply = Ask(port_, Post("/v1/completions", body, key));
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200") && reply.contains("X-Request-Id: mine")) << reply;
  const std::string err = End().err;
  const auto count = [&](std::string_view part) {
    size_t n = 0;
    for (size_t at = err.find(part); at != err.npos; at = err.find(part, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count(R"("status":401,)"), 2U) << err;
  EXPECT_EQ(count(R"("id":"mine")"), 1U) << err;
  EXPECT_EQ(count(R"("completion_tokens":2,)"), 1U) << err;
  EXPECT_FALSE(err.contains("secret")) << err;
}

// The house gives and deletes stored answers itself; a conversation goes on with another model.
TEST_F(HouseTest, StoredAnswersAreTheKeysAndNoModels) {
  const std::string keys = folder_.File("keys");
  std::ofstream(keys) << "mine\ntheirs\n";
  Serve({"--models", Models(), "--ctx", "256", "--api-key-file", keys, "--response-store",
         folder_.File("answers")});
  const std::string mine = "Authorization: Bearer mine\r\n";
  const std::string theirs = "Authorization: Bearer theirs\r\n";
  const auto ask = [&](const std::string& model, const std::string& fields,
                       const std::string& headers) {
    return Ask(port_, Post("/v1/responses",
                           R"({"model":")" + model + R"(","input":"Once","max_output_tokens":4)" +
                               fields + "}",
                           headers));
  };
  const std::string first = ask("demo", "", mine);
  const size_t at = first.find("resp_");
  ASSERT_NE(at, std::string::npos) << first;
  const std::string id = first.substr(at, 21);
  const std::string path = "/v1/responses/" + id;
  const std::string onward = R"(,"previous_response_id":")" + id + '"';
  EXPECT_TRUE(ask("hybrid", onward, mine).starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(ask("hybrid", onward, theirs).contains("previous_response_not_found"));
  EXPECT_TRUE(Ask(port_, Get(path, theirs)).starts_with("HTTP/1.1 404"));
  // No process is needed to give an answer back.
  for (const char* model : {"demo", "hybrid"}) {
    Ask(port_, Post("/models/unload", R"({"model":")" + std::string(model) + "\"}", mine));
  }
  for (int i = 0; i < 200 && ProcessOf("demo") != -1; ++i) std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(Ask(port_, Get(path, mine)).contains(first.substr(first.find("\r\n\r\n") + 4)));
  EXPECT_EQ(ProcessOf("demo"), -1);
  EXPECT_TRUE(Ask(port_, "DELETE " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + mine +
                             "Connection: close\r\n\r\n")
                  .contains(R"("deleted":true)"));
  EXPECT_TRUE(Ask(port_, Get(path, mine)).starts_with("HTTP/1.1 404"));
  EXPECT_EQ(End().exit_code, 0);
  const Finished refused =
      RunToEnd({"--models", Models(), "--for", "demo:response-store=" + folder_.File("x")});
  EXPECT_TRUE(refused.err.contains("whole server")) << refused.err;
}

TEST_F(HouseTest, WhatItCannotStartWithIsSaid) {
  const auto refused = [&](std::vector<std::string> arguments) {
    const Finished finished = RunToEnd(std::move(arguments));
    EXPECT_NE(finished.exit_code, 0);
    return finished.err;
  };
  std::filesystem::create_directory(folder_.File("empty"));
  EXPECT_TRUE(refused({"--models", folder_.File("empty")}).contains("no GGUF file"));
  EXPECT_TRUE(refused({"--models", folder_.File("absent.gguf")}).contains("absent"));
  EXPECT_TRUE(refused({"--models", Models(), FileOf("demo")}).contains("MODEL"));
  EXPECT_TRUE(refused({"--models", FileOf("demo") + "," + kDemo + "," + FileOf("demo")})
                  .contains("two models are called demo"));
  EXPECT_TRUE(refused({"--models", Models(), "--for", "dmo:ctx=5"}).contains("nearest: demo"));
  EXPECT_TRUE(refused({"--models", Models(), "--for", "demo:port=5"}).contains("whole server"));
  EXPECT_TRUE(refused({"--models", Models(), "--for", "demo:ctz=5"}).contains("'ctx'"));
  EXPECT_TRUE(refused({"--models", Models(), "--keep-alive", "soon"}).contains("no time"));
  EXPECT_TRUE(refused({"--models", Models(), "--ram", "100M"}).contains("too little"));
}

TEST_F(HouseTest, SectionsOfTheSettingsNameModelsAndSetTheirFlags) {
  std::filesystem::create_directory(folder_.File("moestro"));
  std::ofstream(folder_.File("moestro/moestro.conf"))
      << "keep-alive = 1h\nctx = 128\n[models.small]\nmodel = " << kDemo
      << "\nctx = 64\n[models.usual]\nmodel = " << FileOf("hybrid") << "\n";
  Serve({});
  const std::string list = AwaitList(2);
  EXPECT_TRUE(list.contains(R"("id":"small")") && list.contains(R"("id":"usual")")) << list;
  EXPECT_TRUE(Ask(port_, Get("/v1/models/small")).contains(R"("n_ctx":64)")) << list;
  EXPECT_TRUE(Ask(port_, Get("/v1/models/usual")).contains(R"("n_ctx":128)")) << list;
  EXPECT_FALSE(TextOf(AskFor("small")).empty());
  EXPECT_TRUE(Ask(port_, Get("/props")).contains(R"("n_ctx":64)"));
  EXPECT_EQ(End().exit_code, 0);
}

}  // namespace
}  // namespace moestro::testing
