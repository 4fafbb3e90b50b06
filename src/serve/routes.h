// SPDX-License-Identifier: MIT
// Which path answers what, and who may ask. Paths work with and without "/v1" where clients differ.
//
// Until the model is ready, what needs it answers 503. /health, /metrics and the page never wait
// for the engine.
//
// Thread rule: any thread, but for Set...(): one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/access.h"
#include "serve/http_server.h"
#include "serve/ready_model.h"

namespace moestro {

struct RouteOptions {
  std::vector<std::string> keys = {};  // one of them must come along; empty: every client may ask
  AccessRules access = {};
};

class Routes {
 public:
  explicit Routes(RouteOptions options) : options_(std::move(options)) {}

  std::optional<HttpReply> Admit(const HttpRequest& request) const;
  HttpReply Answer(HttpRequest& request) const;
  // The server's own name for what a path leads to, for the log: "/slots/N", "other".
  static std::string_view NameOf(std::string_view path);
  // The body of an error of the server itself, as the path's clients read it.
  static std::string Refuse(const RequestRecord& record, int status, std::string_view message);
  // Headers of every reply to the request.
  std::vector<std::pair<std::string, std::string>> HeadersFor(const HttpRequest& request) const;

  // What is answered even if all other connections are taken.
  static std::vector<std::string> KeptPaths();

  // The server ends soon: /health says so. Any thread.
  void SetDraining() { is_draining_.store(true, std::memory_order_release); }
  // The model must outlive this.
  void SetReady(const ReadyModel& model) { model_.store(&model, std::memory_order_release); }

 private:
  // Which key came along, from 1; 0: none that is known.
  uint32_t KeyOf(const HttpRequest& request) const;

  RouteOptions options_;
  std::atomic<const ReadyModel*> model_ = nullptr;
  std::atomic<bool> is_draining_ = false;
};

}  // namespace moestro
