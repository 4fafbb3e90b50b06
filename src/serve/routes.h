// SPDX-License-Identifier: MIT
// Which path answers what, and who may ask. Paths work with and without "/v1" where clients differ.
//
// Until the model is ready, what needs it answers 503. /health, /metrics and the page never wait
// for the engine.
//
// Thread rule: any thread, but for Set...(): one thread.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http_server.h"
#include "serve/ready_model.h"

namespace moestro {

struct RouteOptions {
  std::vector<std::string> keys;  // one of them must come along; empty: anybody may ask
  std::string cors_origin = {};   // whose pages may ask; empty: none but our own
};

class Routes {
 public:
  explicit Routes(RouteOptions options) : options_(std::move(options)) {}

  std::optional<HttpReply> Admit(const HttpRequest& request) const;
  HttpReply Answer(const HttpRequest& request) const;
  static std::string Refuse(int status, std::string_view message);
  // Headers of every reply.
  std::vector<std::pair<std::string, std::string>> headers() const;

  // The model must outlive this.
  void SetReady(const ReadyModel& model) { model_.store(&model, std::memory_order_release); }

 private:
  bool HasKey(const HttpRequest& request) const;

  RouteOptions options_;
  std::atomic<const ReadyModel*> model_ = nullptr;
};

}  // namespace moestro
