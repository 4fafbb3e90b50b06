// SPDX-License-Identifier: MIT
// The message to a client with a status that the server itself has chosen.
#pragma once

#include <string_view>

namespace moestro {

// `otherwise`: the message of every other status.
inline std::string_view StatusMessage(int status, std::string_view otherwise) {
  if (status == 400) return "this is no HTTP request";
  if (status == 404) return "there is nothing of that name";
  if (status == 408) return "the request came too slowly";
  if (status == 413) return "the body is too long";
  if (status == 431) return "the request has too many headers";
  if (status == 503) return "the server is going down";
  return otherwise;
}

}  // namespace moestro
