// SPDX-License-Identifier: MIT
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "base/cache_files.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "commands/configuration.h"
#include "commands/named_model.h"
#include "serve/access.h"
#include "serve/readiness.h"
#include "serve/server.h"

namespace moestro {
namespace {

constexpr uint64_t kMostOnDisk = 16 * kGiB;

struct ServeOptions {
  CommonOptions common;
  ServerOptions server;
  NamedModelOptions named;
  std::string cache_disk;
  std::optional<Flag> ctx;
};

Result<uint64_t> DiskSpace(const ServeOptions& options) {
  const std::string folder = CacheFolder();
  if (folder.empty()) return 0;
  if (!options.cache_disk.empty()) return ParseBytes(options.cache_disk);
  // A tenth of the folder's free space.
  std::string parent = folder;
  while (access(parent.c_str(), F_OK) != 0) parent = parent.substr(0, parent.rfind('/'));
  const Result<uint64_t> free = FreeBytesFor(parent + "/x");
  return free ? std::min(*free / 10, kMostOnDisk) : 0;
}

// Refuses a budget beyond the limit of the service manager or a container, which would end the
// process in the middle of a text.
Status CheckGranted(uint64_t ram) {
  const std::optional<uint64_t> limit = MemoryLimit();
  if (!limit || ram <= *limit) return {};
  return Fail(Errc::kUsage,
              "--ram {} is more than the {} that this process's control group may take: give less, "
              "leave --ram out, or raise the limit (a unit's MemoryMax, a container's memory)",
              FormatBytes(ram), FormatBytes(*limit));
}

Status Run(ServeOptions& options) {
  ServerOptions& server = options.server;
  server.engine = options.common.engine;
  server.has_ctx = options.ctx->is_given();
  Features features = FeaturesOf(server.engine);
  features.draft = server.draft.is_on();
  TRY_STATUS(CheckTogether(features));
  TRY_STATUS(CheckGranted(server.engine.ram_bytes));
  if (server.model.empty()) {
    TRY(server.model, DemoModelPath());
    if (server.alias.empty()) server.alias = "demo";
  } else {
    options.named.is_waited_for = !ServiceNotice::AddressOfEnvironment().empty();
    TRY(server.model, FindNamedModel(server.model, options.named, server.engine));
  }
  server.cache_folder = CacheFolder();
  TRY(server.cache_disk, DiskSpace(options));
  Output out(STDOUT_FILENO);
  return Serve(server, [&](const std::string& address) {
    const Status said = out.Write(Format("moestro serves {} on {}\n", server.model, address));
    if (!said) LogWarning("{}", said.error().message);
  });
}

// Flags for access to the server.
void AddAccessFlags(Flags& serve, const std::shared_ptr<ServeOptions>& options) {
  serve
      .Add("--api-key-file", options->server.key_file,
           "file of keys, one a line; clients need one of them")
      .Type("FILE");
  serve.AddParsed("--allowed-host", "NAME,...",
                  "names by which clients may call this server beside its addresses, localhost and "
                  "this machine's name; with keys any will do",
                  [options](const std::string& text) -> Status {
                    TRY(options->server.allowed_hosts, ParseHosts(text));
                    return {};
                  });
  serve.AddParsed("--cors", "ORIGIN,...",
                  "origins whose web pages may ask, for example http://x.de; with keys also *",
                  [options](const std::string& text) -> Status {
                    TRY(options->server.cors_origins, ParseOrigins(text));
                    return {};
                  });
}

}  // namespace

void AddServe(CommandLine& line) {
  auto options = std::make_shared<ServeOptions>();
  ServerOptions& server = options->server;
  Flags serve =
      line.AddCommand(CommandNamed("serve"), [options] { return ExitCode(Run(*options)); });
  serve.Footer(
      "Without MODEL a small story model that is part of the program. Point a client at\n"
      "http://127.0.0.1:8080/v1, with any key; a page to look at is at http://127.0.0.1:8080.\n"
      "Example: moestro serve model.gguf --ram 6G\n" +
      std::string(kSettingsHelp));
  serve.Add("MODEL", server.model, "GGUF file (of a split model the first) or owner/repo:QUANT");
  AddNamedModelFlags(serve, options->named);
  serve.Group("Server");
  serve.Add("--host", server.host, "address to listen on").ShowDefault();
  serve.Add("--port", server.port, "port to listen on; 0: any free one")
      .Between(0U, 65535U)
      .ShowDefault();
  serve.Add("--alias", server.alias, "what clients shall call the model");
  serve
      .Add("--chat-template", server.chat_template,
           "instead of the model's own: chatml, gemma, llama3, mistral, or a file")
      .Type("NAME|FILE");
  AddAccessFlags(serve, options);
  serve.Add("--parallel", server.parallel, "texts that are written beside each other")
      .Between(1U, 64U)
      .ShowDefault();
  serve
      .Add("--queue", server.queue,
           "requests that may wait while others are computed; more get 429")
      .ShowDefault();
  serve
      .Add("--gap", server.gap_seconds,
           "seconds that a text's next token may wait for others' prompts, where the disk allows")
      .ShowDefault();
  AddDraftFlag(serve, server.draft);
  serve
      .Add("--checkpoint-every", server.checkpoint_every,
           "tokens between the states that a text of a model with states can go back to; 0: only "
           "where its messages end")
      .ShowDefault();
  serve
      .Add("--drain", server.drain_seconds,
           "seconds that answers get to end after SIGTERM, SIGHUP or Ctrl-C")
      .NonNegative()
      .ShowDefault();
  serve
      .Add("--request-timeout", server.request_seconds,
           "seconds that a request may take; an answer that has begun ends with \"length\", "
           "another is 504 (default: any time)")
      .Type("SECONDS")
      .NonNegative();
  serve.AddParsed("--cache-ram", "SIZE",
                  "keys and values of other texts beside one full context, kept prefixes among "
                  "them (default: as much as that context)",
                  [options](const std::string& text) -> Status {
                    TRY(options->server.cache_ram, ParseBytes(text));
                    return {};
                  });
  serve
      .Add("--cache-disk", options->cache_disk,
           "prefixes kept on disk, in $XDG_CACHE_HOME/moestro; 0: none (default: a tenth of what "
           "is free, at most 16G)")
      .Type("SIZE");
  serve
      .Add("--slot-save-path", server.saved_texts_folder,
           "folder for what clients save and restore by POST /slots/N; without it they cannot")
      .Type("DIR");
  serve.AddSwitch("--log-requests", server.logs_requests,
                  "a JSON line for each request on stderr: figures, never text");
  serve.AddSwitch(
      "--fast-batches", options->common.engine.fast_batches,
      "faster steps of many rows with types that only ggml multiplies (IQ types), whose "
      "texts then depend on what else is computed");
  options->ctx = AddCommonFlags(serve, options->common);
  AddColdFlag(serve, options->common);
}

}  // namespace moestro
