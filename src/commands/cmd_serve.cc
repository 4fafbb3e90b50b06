// SPDX-License-Identifier: MIT
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
#include "commands/house_models.h"
#include "commands/named_model.h"
#include "engine/plan/memory_plan.h"
#include "house/asked_model.h"
#include "house/house_server.h"
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
  HouseWish house;
  bool shows_needs = false;

  bool is_house() const { return !house.models.empty() || !house.flags.empty(); }
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

// The paths of models that a house's list names. The demo model may be in this process's memory
// alone, where its processes find it, too.
Result<std::string> FindForHouse(const ServeOptions& options, const std::string& text) {
  if (text != "demo") return FindNamedModel(text, options.named, options.common.engine);
  TRY(const std::string path, DemoModelPath());
  constexpr std::string_view kSelf = "/proc/self/";
  if (!path.starts_with(kSelf)) return path;
  return Format("/proc/{}/{}", getpid(), path.substr(kSelf.size()));
}

Status RunHouse(ServeOptions& options, const CommandLine& line) {
  const ProgramText program = line.Describe();
  const CommandText* command = FindCommand(program, "serve");
  options.house.given.assign(line.arguments().begin() + 1, line.arguments().end());
  options.named.is_waited_for = !ServiceNotice::AddressOfEnvironment().empty();
  HouseOptions house{.server = options.server};
  TRY(house.models, ReadHouseModels(options.house, *command, [&](const std::string& text) {
        return FindForHouse(options, text);
      }));
  TRY_STATUS(CheckGranted(options.common.engine.ram_bytes));
  house.ram = options.common.engine.ram_bytes > 0 ? options.common.engine.ram_bytes
                                                  : BudgetWithin(UnhinderedMemory());
  const size_t n = house.models.size();
  Output out(STDOUT_FILENO);
  return ServeHouse(std::move(house), [&](const std::string& address) {
    const Status said =
        out.Write(Format("moestro serves {} model{} on {}\n", n, n == 1 ? "" : "s", address));
    if (!said) LogWarning("{}", said.error().message);
  });
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
  if (options.shows_needs) {
    TRY(const ServerNeeds needs, MeasureNeeds(server));
    return Output(STDOUT_FILENO).Write(NeedsJson(needs).Dump() + "\n");
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

// Flags for answers that are stored.
void AddResponseFlags(Flags& serve, const std::shared_ptr<ServeOptions>& options) {
  ResponseStoreOptions& responses = options->server.responses;
  serve
      .Add(
          "--response-store", responses.folder,
          "folder for answers of /v1/responses, which clients then get again by id and go on from; "
          "without it nothing is stored")
      .Type("DIR");
  serve.AddParsed("--response-store-size", "SIZE",
                  "bytes of stored answers; beyond, the oldest go (default: 1G)",
                  [options](const std::string& text) -> Status {
                    TRY(options->server.responses.most_bytes, ParseBytes(text));
                    return {};
                  });
  serve
      .Add("--response-store-days", responses.most_days,
           "days until a stored answer is deleted; 0: it stays")
      .NonNegative()
      .ShowDefault();
}

// Flags of a server of several models.
void AddHouseFlags(Flags& serve, const std::shared_ptr<ServeOptions>& options,
                   const CommandLine& line) {
  serve.Group("Several models");
  serve
      .Add("--models", options->house.models,
           "models that requests choose from by name, all in one --ram: a folder of GGUF files, or "
           "files, names of the hub's cache and 'demo' between commas")
      .Type("DIR|LIST")
      .Excludes("MODEL");
  serve
      .AddParsedEach("--for", "NAME:FLAG=VALUE",
                     "a flag for one of the models, as coder:ctx=16384; in a file of settings a "
                     "section [models.NAME]",
                     [options, &line](const std::string& text) -> Status {
                       const ProgramText program = line.Describe();
                       TRY(FlagSetting setting,
                           ParseModelFlag(*FindCommand(program, "serve"), text));
                       options->house.flags.push_back(std::move(setting));
                       return {};
                     })
      .Excludes("MODEL");
  serve.AddParsed("--keep-alive", "TIME",
                  "how long a model without requests stays, as 5m; others' needs end it earlier "
                  "(default: forever)",
                  [options](const std::string& text) -> Status {
                    TRY(options->house.keep_alive, ParseKeepAlive(text));
                    return {};
                  });
  serve.AddSwitch("--show-needs", options->shows_needs,
                  "print what --ram the model needs, as JSON, and end");
}

// How many texts are written, which of them next, and for how long. `server` outlives `serve`.
void AddTextFlags(Flags& serve, ServerOptions& server) {
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
}

}  // namespace

void AddServe(CommandLine& line) {
  auto options = std::make_shared<ServeOptions>();
  ServerOptions& server = options->server;
  Flags serve = line.AddCommand(CommandNamed("serve"), [options, &line] {
    LogWithoutWaiting();
    return ExitCode(options->is_house() ? RunHouse(*options, line) : Run(*options));
  });
  serve.Footer(
      "Without MODEL a small story model that is part of the program. Point a client at\n"
      "http://127.0.0.1:8080/v1, with any key; a page to look at is at http://127.0.0.1:8080.\n"
      "Example: moestro serve model.gguf --ram 6G\n" +
      std::string(kSettingsHelp));
  serve.Add("MODEL", server.model, "GGUF file (of a split model the first) or owner/repo:QUANT");
  AddNamedModelFlags(serve, options->named);
  AddHouseFlags(serve, options, line);
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
  AddTextFlags(serve, server);
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
  AddResponseFlags(serve, options);
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
