// SPDX-License-Identifier: MIT
// Addresses and folders of models, by the variables that other tools of the hub read, too. Proxies
// are left to libcurl, which reads their variables itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

// The value of a variable; nullopt: it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
// The content of a small file; nullopt: it cannot be read.
using SmallFileReader = std::function<std::optional<std::string>(const std::string& path)>;

struct HubSettings {
  std::string endpoint;     // "https://host", without a slash at the end
  std::string token = {};   // empty: none
  std::string cache = {};   // the folder of models--owner--repo; empty: no variable names one
  bool is_offline = false;  // no request may leave this machine
};

// HF_ENDPOINT; HF_TOKEN, else the file HF_TOKEN_PATH or HF_HOME/token; LLAMA_CACHE, HF_HUB_CACHE,
// HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, HOME/.cache/huggingface/hub,
// whichever is first; HF_HUB_OFFLINE. An empty variable counts as unset. kUsage: an endpoint that
// is no address, a token with characters that no header can carry.
Result<HubSettings> ReadHubSettings(const Environment& environment,
                                    const SmallFileReader& read_file);
// Settings by this process's environment and files.
Result<HubSettings> ReadHubSettings();

// Whether the token may go with a request for `address`: the address is the endpoint's, and the way
// is https or within this machine, so that no other reads the token.
bool MayHaveToken(const HubSettings& settings, std::string_view address);

}  // namespace moestro
