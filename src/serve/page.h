// SPDX-License-Identifier: MIT
// The dashboard: the files of page/ inside the program. They ask for nothing but this server, and
// their Content-Security-Policy allows no script but these files.
#pragma once

#include <string_view>

#include "serve/http_server.h"

namespace moestro {

struct PageFile {
  std::string_view path;
  std::string_view type;
  std::string_view bytes;
};

// nullptr: there is no such file.
const PageFile* FindPageFile(std::string_view path);
HttpReply ReplyOf(const PageFile& file);

}  // namespace moestro
