// SPDX-License-Identifier: MIT
// `moestro serve` as a program, asked through a socket.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/program_testing.h"
#include "tests/support/socket_client_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro::testing {

inline std::string Ask(uint16_t port, const std::string& request) {
  const SocketClient client(port);
  return client.Send(request) ? client.ReceiveAll() : "";
}

class ServeTest : public ::testing::Test {
 protected:
  Finished RunToEnd(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "serve");
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  // Serves the models that the arguments name, else the demo model, on port_; ready when this
  // returns.
  void Serve(std::vector<std::string> arguments = {}) {
    port_ = SocketClient::FreePort();
    arguments.insert(arguments.begin(),
                     {"serve", "--threads", "1", "--port", std::to_string(port_)});
    program_ = std::make_unique<Program>(folder_.path(), Start{.arguments = std::move(arguments)});
    for (int i = 0; i < 1500; ++i) {
      if (Ask(port_, Get("/health")).contains(R"({"status":"ok")")) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    FAIL() << "the server did not become ready";
  }
  Finished End() {
    program_->Interrupt();
    return program_->Wait();
  }

  TempFolder folder_;
  uint16_t port_ = 0;
  std::unique_ptr<Program> program_;
};

}  // namespace moestro::testing
