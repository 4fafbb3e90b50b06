// SPDX-License-Identifier: MIT
#include "house/house_server.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "base/number.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "house/house.h"
#include "house/house_routes.h"
#include "serve/http_server.h"
#include "serve/readiness.h"
#include "serve/request_log.h"
#include "serve/response_store.h"

namespace moestro {
namespace {

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  struct sigaction action = {};
  if (sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
    sigaddset(&signals, SIGHUP);
  }
  return signals;
}

// Ends this process at once when a second signal comes; processes of models end with it.
void EndAtTheNext(int first) {
  std::thread([first] {
    const sigset_t signals = EndSignals();
    int got = 0;
    // Managers send SIGTERM and SIGHUP together, and terminals SIGHUP several times.
    do {
      sigwait(&signals, &got);
    } while (got == SIGHUP || (first == SIGHUP && got == SIGTERM));
    std::_Exit(1);
  }).detach();
}

}  // namespace

Status ServeHouse(HouseOptions options, const std::function<void(const std::string&)>& listens) {
  const ServerOptions& server = options.server;
  TRY(std::vector<std::string> keys, ReadKeys(server));
  if (options.ram <= kHouseBytes) {
    return Fail(Errc::kInvalidRequest,
                "--ram {} is too little: a server of several models takes {} beside the models",
                FormatBytes(options.ram), FormatBytes(kHouseBytes));
  }
  TRY(const std::unique_ptr<ResponseStore> responses, OpenResponses(server));
  ReturnLargeBlocksAtOnce();
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ServiceNotice notice(ServiceNotice::AddressOfEnvironment());
  const size_t n_models = options.models.size();
  TRY(const std::unique_ptr<House> house,
      House::Open(std::move(options.models), options.ram - kHouseBytes, server.drain_seconds));
  AccessRules access = AccessFor(server, !keys.empty());
  HouseRoutes routes({.keys = std::move(keys), .access = std::move(access)}, *house,
                     responses.get());
  RequestLines log(STDERR_FILENO);
  const auto ended = [&](const RequestRecord& record) {
    if (!server.logs_requests || HouseRoutes::WasPassedOn(record)) return;
    RequestRecord named = record;
    named.route = Routes::NameOf(record.path);
    log.Write(named);
  };
  TRY(std::unique_ptr<HttpServer> http,
      HttpServer::Listen({.host = server.host,
                          .port = static_cast<uint16_t>(server.port),
                          .kept_paths = Routes::KeptPaths()},
                         {.admit = [&](const HttpRequest& r) { return routes.Admit(r); },
                          .answer = [&](HttpRequest& r) { return routes.Answer(r); },
                          .refuse = Routes::Refuse,
                          .headers = [&](const HttpRequest& r) { return routes.HeadersFor(r); },
                          .ended = ended}));
  const std::string address = AddressOf(server.host, http->port());
  listens(address);
  notice.Send(Format("READY=1\nSTATUS=serves {} models on {}", n_models, Printable(address)));
  int first = 0;
  sigwait(&signals, &first);
  EndAtTheNext(first);
  notice.Send("STOPPING=1\nSTATUS=ends what is under way");
  routes.SetDraining();
  house->Drain();
  house->AwaitEnd();
  http.reset();  // its threads use objects that end with this function
  return {};
}

}  // namespace moestro
