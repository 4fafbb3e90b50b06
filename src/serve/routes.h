// SPDX-License-Identifier: MIT
// The server's paths: the handler of each path, and the clients that may use it. A path works with
// and without "/v1" where clients differ.
//
// Paths that need the model answer 503 until the model is ready. /health, /metrics and the page
// never wait for the engine.
//
// Thread rule: any thread; Set...() are one thread's.
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

// The dashboard: the files of page/ inside the program. The page sends requests to this server
// only. The page's Content-Security-Policy allows no script but these files.

struct PageFile {
  std::string_view path;
  std::string_view type;
  std::string_view bytes;
};

// nullptr: the page has no such file.
const PageFile* FindPageFile(std::string_view path);
HttpReply ReplyOf(const PageFile& file);

// The header in which a house names the owner of a request's files to a model's process.
inline constexpr std::string_view kOwnerHeader = "X-Moestro-Owner";

struct RouteOptions {
  std::vector<std::string> keys = {};  // a client must send one of these; empty: no key is needed
  AccessRules access = {};
};

class Routes {
 public:
  explicit Routes(RouteOptions options) : options_(std::move(options)) {}

  std::optional<HttpReply> Admit(const HttpRequest& request) const;
  HttpReply Answer(HttpRequest& request) const;
  // The name of paths of stored answers.
  static constexpr std::string_view kOfStored = "/responses/ID";
  // The server's own name of a path, for the log: "/slots/N", "other".
  static std::string_view NameOf(std::string_view path);
  // The body of an error of the server itself, in the format of the path's clients.
  static std::string Refuse(const RequestRecord& record, int status, std::string_view message);
  // Headers of every reply to the request.
  std::vector<std::pair<std::string, std::string>> HeadersFor(const HttpRequest& request) const;

  // Paths that are answered even if all other connections are taken.
  static std::vector<std::string> KeptPaths();

  // The server ends soon, and /health reports that. Any thread.
  void SetDraining() { is_draining_.store(true, std::memory_order_release); }
  // The model must outlive this.
  void SetReady(const ReadyModel& model) { model_.store(&model, std::memory_order_release); }

 private:
  // The number of the request's key, from 1; 0: no known key.
  uint32_t KeyOf(const HttpRequest& request) const;
  // See RequestRecord. REQUIRES: the record has the key.
  std::string OwnerOf(const HttpRequest& request) const;

  RouteOptions options_;
  std::atomic<const ReadyModel*> model_ = nullptr;
  std::atomic<bool> is_draining_ = false;
};

}  // namespace moestro
