// SPDX-License-Identifier: MIT
// A house's paths: what it answers itself, and what it passes on to the process of a model. Of a
// body that is passed on only the model's name and keep_alive are looked at.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_request.h"
#include "house/asked_model.h"
#include "house/house.h"
#include "house/worker_link.h"
#include "serve/http_message.h"
#include "serve/http_server.h"
#include "serve/response_store.h"
#include "serve/routes.h"

namespace moestro {

class HouseRoutes {
 public:
  // `house` and `responses` must outlive this. `responses`: the store that the models' processes
  // share; nullptr: they store no answers.
  HouseRoutes(RouteOptions options, House& house, ResponseStore* responses)
      : routes_(std::move(options)), house_(house), responses_(responses) {}

  std::optional<HttpReply> Admit(const HttpRequest& request) const {
    return routes_.Admit(request);
  }
  HttpReply Answer(HttpRequest& request) const;
  HttpHeaders HeadersFor(const HttpRequest& request) const { return routes_.HeadersFor(request); }
  // The house ends soon.
  void SetDraining() { is_draining_.store(true, std::memory_order_release); }
  // Whether a process of a model has logged the request.
  static bool WasPassedOn(const RequestRecord& record);

 private:
  std::vector<ModelReport> Reports() const;
  std::optional<HttpReply> AnswerItself(HttpRequest& request, std::string_view path) const;
  std::optional<HttpReply> AnswerAboutModels(const HttpRequest& request,
                                             std::string_view path) const;
  HttpReply LoadOrUnload(const HttpRequest& request, bool loads) const;
  HttpReply AnswerOfStore(const HttpRequest& request, std::string_view path) const;
  HttpReply Show(const HttpRequest& request) const;
  HttpReply PassByQuery(HttpRequest& request, bool loads) const;
  HttpReply PassByBody(HttpRequest& request, std::string_view path) const;
  HttpReply Pass(HttpRequest& request, ApiKind kind, size_t model,
                 std::optional<double> keep_alive) const;
  ApiResult<size_t> ModelOf(const AskedModel& asked) const;
  ApiResult<size_t> ModelOfQuery(const HttpRequest& request) const;

  Routes routes_;
  House& house_;
  ResponseStore* const responses_;
  mutable LinkPool links_;
  std::atomic<bool> is_draining_ = false;
};

}  // namespace moestro
