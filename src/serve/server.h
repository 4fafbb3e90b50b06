// SPDX-License-Identifier: MIT
// The server as a whole: listens, loads a model, answers until it is told to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"

namespace moestro {

struct ServerOptions {
  std::string model;               // path
  std::string alias = {};          // how clients see it; empty: the file's name without its ending
  std::string chat_template = {};  // a known one's name or a file; empty: the model's own
  EngineOptions engine;
  bool has_ctx = false;  // engine.ctx was asked for; else it is chosen for the model and the memory
  std::string host = "127.0.0.1";
  uint32_t port = 8080;  // 0: any free one
  uint32_t parallel = 4;
  uint32_t queue = 64;
  double gap_seconds = 1.0;
  double drain_seconds = 5.0;
  double request_seconds = 0.0;                 // that one request may take; 0: any time
  std::string key_file = {};                    // a key a line; empty: none
  std::vector<std::string> allowed_hosts = {};  // ParseHosts(): names of this server
  std::vector<std::string> cors_origins = {};   // ParseOrigins(): whose pages may ask
  uint64_t cache_ram = 0;   // keys and values beyond one full context; 0: as much again
  uint64_t cache_disk = 0;  // bytes of prefixes on disk; 0: none
  std::string cache_folder = {};
  std::string saved_texts_folder = {};  // for texts that clients save; empty: they cannot
  bool logs_requests = false;           // a line for each, on stderr; see RequestLines
};

// kUsage: the host is reachable from elsewhere, or every origin may ask, and there is no key; the
// key file holds none. kIo: it cannot be read.
Result<std::vector<std::string>> ReadKeys(const ServerOptions& options);

// Serves until SIGTERM or SIGINT. `listens` is told the address once there is one. Errors: those of
// ReadKeys(); kUsage when saved_texts_folder is no folder; what HttpServer::Listen(),
// ModelFile::Open() and OpenEngine() say.
//
// Thread rule: the process's first thread, before any other; it becomes the engine thread.
Status Serve(const ServerOptions& options, const std::function<void(const std::string&)>& listens);

}  // namespace moestro
