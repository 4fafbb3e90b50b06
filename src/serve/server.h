// SPDX-License-Identifier: MIT
// The server as a whole: listens, loads a model, answers until a signal ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/server_bodies.h"
#include "base/json.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "serve/access.h"
#include "serve/response_store.h"
#include "text/drafts.h"

namespace moestro {

struct ServerOptions {
  std::string model;       // path
  std::string alias = {};  // the name that clients see; empty: the file's name without the suffix
  std::string chat_template = {};  // a known template's name or a file; empty: the model's own
  EngineOptions engine;
  bool has_ctx = false;            // false: engine.ctx is chosen for the model and the memory
  std::string host = "127.0.0.1";  // or a socket's path after kUnixHost
  uint32_t port = 8080;            // 0: any free port
  uint32_t parallel = 4;
  uint32_t queue = 64;
  double gap_seconds = 1.0;
  uint32_t checkpoint_every = 2048;  // see SchedulerOptions
  DraftOptions draft = {};
  double drain_seconds = 5.0;
  double request_seconds = 0.0;                 // most for one request; 0: no limit
  std::string key_file = {};                    // a key a line; empty: no keys
  std::vector<std::string> allowed_hosts = {};  // ParseHosts(): names of this server
  std::vector<std::string> cors_origins = {};   // ParseOrigins(): allowed pages
  uint64_t cache_ram = 0;   // keys and values beyond one full context; 0: as much again
  uint64_t cache_disk = 0;  // bytes of prefixes on disk; 0: no prefix is written
  std::string cache_folder = {};
  std::string saved_texts_folder = {};  // for texts that clients save; empty: no client can
  ResponseStoreOptions responses = {};  // answers that clients may have stored
  bool logs_requests = false;           // a line for each request on stderr; see RequestLines
};

// The keys of the key file. kUsage: a server without a key would be reachable from other machines,
// or open to pages of every origin; the key file holds no key. kIo: the file cannot be read.
Result<std::vector<std::string>> ReadKeys(const ServerOptions& options);

// The rules by which the options let clients in.
AccessRules AccessFor(const ServerOptions& options, bool has_keys);
// The store of the options; nullptr: they ask for none. Errors as ResponseStore::Open().
Result<std::unique_ptr<ResponseStore>> OpenResponses(const ServerOptions& options);
// The address as a browser takes it: an IPv6 address stands in brackets. A path stays as it is.
std::string AddressOf(const std::string& host, int port);

// The memory that a server of the model needs as its --ram, and the model as clients see it.
struct ServerNeeds {
  uint64_t smallest = 0;  // a smaller budget does not work
  uint64_t best = 0;      // holds all experts and the context of a large budget; more is of no use
  ServedModel card = {};  // n_ctx is that of the best budget
};

// Reads the model's directory and vocabulary, and no weights. Errors: those of ModelToLoad::Open(),
// CheckDraft(), ChosenTemplate() and PlanEngine().
//
// Thread rule: as Serve().
Result<ServerNeeds> MeasureNeeds(const ServerOptions& options);
// {"smallest", "best", "model": as /v1/models has it, "tag": as /api/tags has it, "show": as
// /api/show has it}.
Json NeedsJson(const ServerNeeds& needs);

// Serves until SIGTERM, SIGINT or SIGHUP. `listens` gets the address once the server listens.
// Errors: those of ReadKeys(), HttpServer::Listen(), ModelFile::Open() and OpenEngine(); kUsage
// when saved_texts_folder is no folder; those of OpenResponses().
//
// Thread rule: the process's first thread, before any other; the thread becomes the engine thread.
Status Serve(const ServerOptions& options, const std::function<void(const std::string&)>& listens);

}  // namespace moestro
