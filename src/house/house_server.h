// SPDX-License-Identifier: MIT
// A server of several models: owns the port, the keys, the rules of access and the limits, and
// passes requests on to processes of this program, one for each model that is loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "house/model_list.h"
#include "serve/server.h"

namespace moestro {

// Memory of this process, and of the one that measures a model's needs.
inline constexpr uint64_t kHouseBytes = uint64_t{320} << 20;

struct HouseOptions {
  // Address, access, drain and log; all else is in the models' own arguments.
  ServerOptions server;
  uint64_t ram = 0;  // of this process and of those of all models
  std::vector<HouseModel> models = {};
};

// Serves until SIGTERM, SIGINT or SIGHUP. `listens`: see Serve(). Errors: those of ReadKeys() and
// HttpServer::Listen(); kInvalidRequest: the budget is not even this process's.
//
// Thread rule: the process's first thread, before any other.
Status ServeHouse(HouseOptions options, const std::function<void(const std::string&)>& listens);

}  // namespace moestro
