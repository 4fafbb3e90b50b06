// SPDX-License-Identifier: MIT
// A server whose handlers answer with the request that they got, for tests.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "serve/http_server.h"

namespace moestro {

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({.port = 0, .most_body = 1000}); }
  void Start(HttpOptions options) {
    HttpHandlers handlers{.admit = [this](const HttpRequest& request) -> std::optional<HttpReply> {
                            ++asked_;
                            if (request.path != "/secret") return std::nullopt;
                            ++refused_;
                            return HttpReply{.status = 401, .body = "no"};
                          },
                          .answer = [this](const HttpRequest& request) { return Answer(request); },
                          .refuse =
                              [](const RequestRecord&, int status, std::string_view message) {
                                return std::to_string(status) + ": " + std::string(message);
                              },
                          .ended =
                              [this](const RequestRecord& record) {
                                const std::lock_guard lock(records_mutex_);
                                records_.push_back(record);
                                ++ended_;
                              }};
    auto server = HttpServer::Listen(std::move(options), std::move(handlers));
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
  }
  HttpReply Answer(const HttpRequest& request) {
    ++answered_;
    if (request.path == "/wait") {
      while (!request.is_gone()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++missed_;
      return {.body = "late"};
    }
    if (request.path == "/turns") {
      for (int i = 0; i < 16; ++i) {
        if (request.is_gone()) return {.body = "cut"};
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return {.body = "sixteen turns"};
    }
    if (request.path == "/nothing") return {.status = 204};
    if (request.path == "/stream-end") {
      return {.stream = [](HttpStream& out) { out.Write("x"); }};
    }
    if (request.path == "/events") {
      return {.type = "text/event-stream", .stream = [](HttpStream& out) {
                for (int i = 1; i <= 16 && out.is_open(); ++i) {
                  out.Write("data: " + std::to_string(i) + "\n\n");
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
              }};
    }
    if (request.path == "/flood") {
      return {.stream = [this](HttpStream& out) {
        const std::string bytes(100000, 'x');
        while (out.Write(bytes)) ++written_;
        ++missed_;
      }};
    }
    if (request.path == "/header") {
      return {.body = "[" + request.body + "]" + request.header("cookie").value_or("") + "]"};
    }
    if (request.path == "/stream") {
      return {.type = "text/event-stream", .stream = [this](HttpStream& out) {
                while (out.Write("data: x\n\n") && out.is_open())
                  std::this_thread::sleep_for(std::chrono::milliseconds(5));
                ++missed_;
              }};
    }
    return {.body = request.method + " " + request.path + " [" + request.body + "]"};
  }

  std::atomic<int> asked_ = 0;  // whether a request may go on
  std::atomic<int> answered_ = 0;
  std::atomic<int> refused_ = 0;
  std::atomic<int> missed_ = 0;
  std::atomic<int> written_ = 0;
  std::atomic<size_t> ended_ = 0;
  std::mutex records_mutex_;
  std::vector<RequestRecord> records_;
  std::unique_ptr<HttpServer> server_;  // last: the server's threads use the other members
};

}  // namespace moestro
