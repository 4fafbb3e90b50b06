// SPDX-License-Identifier: MIT
// The dashboard: the files of page/ inside the program. The page sends requests to this server
// only. The page's Content-Security-Policy allows no script but these files.
#pragma once

#include <string_view>

#include "serve/http_server.h"

namespace moestro {

struct PageFile {
  std::string_view path;
  std::string_view type;
  std::string_view bytes;
};

// nullptr: the page has no such file.
const PageFile* FindPageFile(std::string_view path);
HttpReply ReplyOf(const PageFile& file);

}  // namespace moestro
