// SPDX-License-Identifier: MIT
// The server as a service: settings from files and variables, what it tells a service manager, and
// who asks for its health.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/serve/serve_testing.h"
#include "tests/support/notice_socket_testing.h"

namespace moestro::testing {
namespace {

// Set for the programs that are started while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class ServeServiceTest : public ServeTest {
 protected:
  std::string WriteSettings(const std::string& text) const {
    std::filesystem::create_directories(folder_.File("moestro"));
    const std::string path = folder_.File("moestro/moestro.conf");
    std::ofstream(path) << text;
    return path;
  }
  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
};

TEST_F(ServeServiceTest, ItIsReadyForItsManagerWhenItListensAndSaysWhatItDoes) {
  for (const std::string& address : {folder_.File("notify"), Format("@moestro/{}", getpid())}) {
    const NoticeSocket manager(address);
    ASSERT_TRUE(manager.is_open());
    const Variable socket("NOTIFY_SOCKET", address);
    Serve();
    EXPECT_TRUE(manager.Receive().starts_with("STATUS=reads the header of "));
    EXPECT_TRUE(manager.Receive().starts_with("READY=1\nSTATUS=reads "));
    EXPECT_TRUE(manager.Receive().starts_with("STATUS=serves demo on http://127.0.0.1:"));
    const Finished finished = End();
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_TRUE(manager.Receive().starts_with("STOPPING=1\n"));
  }
}

TEST_F(ServeServiceTest, AStopWhileItLoadsEndsItInOrder) {
  const NoticeSocket manager(folder_.File("notify"));
  const Variable socket("NOTIFY_SOCKET", folder_.File("notify"));
  Program program(folder_.path(), {.arguments = {"serve", "--port", "0"}});
  while (!manager.Receive().starts_with("READY=1")) {
  }
  program.Interrupt();
  EXPECT_EQ(program.Wait().exit_code, 0);
  // Unless the signal was late, nothing is said before.
  std::string said = manager.ReceiveNow();
  if (said.starts_with("STATUS=serves")) said = manager.ReceiveNow();
  EXPECT_TRUE(said.starts_with("STOPPING=1\n")) << said;
}

TEST_F(ServeServiceTest, EachSignalThatEndsItDrainsIt) {
  for (const std::vector<int>& signals : {std::vector{SIGINT},
                                          {SIGTERM},
                                          {SIGHUP},
                                          {SIGHUP, SIGHUP},
                                          {SIGTERM, SIGHUP},
                                          {SIGHUP, SIGTERM}}) {
    Serve({"--drain", "60", "--cache-disk", "0"});
    const SocketClient client(port_);
    const std::string body = R"({"prompt":"Once","max_tokens":64,"ignore_eos":true,"stream":true})";
    ASSERT_TRUE(
        client.Send(Format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           "Content-Type: application/json\r\nConnection: close\r\n"
                           "Content-Length: {}\r\n\r\n{}",
                           body.size(), body)));
    std::string answer = client.ReceiveUntil("data: ");
    for (const int number : signals) {
      program_->Signal(number);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    answer += client.ReceiveAll();
    EXPECT_TRUE(answer.contains("[DONE]")) << signals.front() << ": " << answer;
    EXPECT_EQ(program_->Wait().exit_code, 0) << signals.front();
  }
}

// nohup
TEST_F(ServeServiceTest, AHangupThatIsIgnoredStaysIgnored) {
  const auto before = signal(SIGHUP, SIG_IGN);  // which the program inherits
  Serve();
  signal(SIGHUP, before);
  program_->Signal(SIGHUP);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(Ask(port_, Get("/health")).contains("ok"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(End().exit_code, 0);
}

// A header on a slow disk takes minutes. Here it takes milliseconds, which the signal may miss.
TEST_F(ServeServiceTest, AStopWhileItReadsTheHeaderEndsItBeforeItIsReady) {
  const NoticeSocket manager(folder_.File("notify"));
  const Variable socket("NOTIFY_SOCKET", folder_.File("notify"));
  bool was_in_time = false;
  for (int i = 0; i < 20 && !was_in_time; ++i) {
    Program program(folder_.path(), {.arguments = {"serve", "--port", "0"}});
    EXPECT_TRUE(manager.Receive().starts_with("STATUS=reads the header of "));
    program.Interrupt();
    EXPECT_EQ(program.Wait().exit_code, 0);
    was_in_time = true;
    for (std::string said = manager.ReceiveNow(); !said.empty(); said = manager.ReceiveNow()) {
      was_in_time = was_in_time && !said.starts_with("READY=1");
    }
  }
  EXPECT_TRUE(was_in_time);
}

TEST_F(ServeServiceTest, NamesCannotSendTheManagerOrders) {
  const NoticeSocket manager(folder_.File("notify"));
  const Variable socket("NOTIFY_SOCKET", folder_.File("notify"));
  const std::string path = folder_.File("a\nREADY=1\n.gguf");
  std::ofstream(path) << "no model";
  EXPECT_EQ(RunToEnd({path}).exit_code, 1);
  const std::string said = manager.ReceiveNow();
  EXPECT_TRUE(said.contains("READY=1?.gguf")) << said;
  EXPECT_FALSE(said.contains('\n')) << said;
  Serve({"--alias", "a\nSTOPPING=1"});
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(manager.Receive().contains("\nSTOPPING=1"));
  }
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeServiceTest, ANotifySocketThatIsNoneEndsNothing) {
  const Variable socket("NOTIFY_SOCKET", "/no/such/socket");
  Serve();
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_TRUE(finished.err.contains("NOTIFY_SOCKET=/no/such/socket")) << finished.err;
}

// A manager waits some minutes for a start, and starts again what takes longer.
TEST_F(ServeServiceTest, AServiceFetchesNoModel) {
  const NoticeSocket manager(folder_.File("notify"));
  const Variable cache("HF_HOME", folder_.File("hub"));
  const Variable endpoint("HF_ENDPOINT", "http://127.0.0.1:1");
  const Variable socket("NOTIFY_SOCKET", folder_.File("notify"));
  const Finished finished = RunToEnd({"owner/repo:Q4_K_M", "--yes"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_TRUE(
      finished.err.contains("HF_HOME=" + folder_.File("hub") + " moestro pull owner/repo:Q4_K_M"))
      << finished.err;
}

TEST_F(ServeServiceTest, SettingsGoBeneathVariablesAndFlags) {
  WriteSettings("alias = of-the-file\nqueue = 3\nlog-requests = on\n");
  const Variable queue("MOESTRO_ALIAS", "of-the-variable");
  Serve({"--queue", "5"});
  EXPECT_TRUE(Ask(port_, Get("/v1/models")).contains(R"("id":"of-the-variable")"));
  const Finished finished = End();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(finished.err.contains(R"("route":"/models")")) << finished.err;
}

TEST_F(ServeServiceTest, AMistakeInSettingsIsAUsageErrorThatNamesTheLine) {
  const std::string path = WriteSettings("alias = a\nrma = 6G\n");
  const Finished unknown = RunToEnd({});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.err,
            "moestro: " + path + ":2: there is no setting 'rma'; did you mean 'ram'?\n");
  WriteSettings("ram = lots\n");
  const Finished bad = RunToEnd({});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_TRUE(bad.err.starts_with("moestro: " + path + ":1: --ram: 'lots'")) << bad.err;
}

TEST_F(ServeServiceTest, HealthAsksWhereTheSettingsSayTheServerIs) {
  EXPECT_EQ(Run({"health", "--port", std::to_string(SocketClient::FreePort())}).exit_code, 1);
  WriteSettings("port = 0\n");
  const Finished any = Run({"health"});
  EXPECT_EQ(any.exit_code, 1);
  EXPECT_TRUE(any.err.contains("give the port that it named")) << any.err;
  WriteSettings("");
  Serve();
  WriteSettings(Format("port = {}\nhost = 127.0.0.1\n", port_));
  const Finished ready = Run({"health"});
  EXPECT_EQ(ready.exit_code, 0) << ready.err;
  EXPECT_EQ(ready.out, "ready\n");
  EXPECT_EQ(End().exit_code, 0);
  const Finished gone = Run({"health"});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_TRUE(gone.err.contains(std::to_string(port_))) << gone.err;
}

}  // namespace
}  // namespace moestro::testing
