// SPDX-License-Identifier: MIT
#include "serve/page.h"

#include <algorithm>
#include <array>
#include <string>

// Made by the build: cmake/Embed.cmake.
extern const unsigned char moestro_page_html[];
extern const unsigned long moestro_page_html_size;
extern const unsigned char moestro_page_css[];
extern const unsigned long moestro_page_css_size;
extern const unsigned char moestro_page_js[];
extern const unsigned long moestro_page_js_size;
extern const unsigned char moestro_page_chat_js[];
extern const unsigned long moestro_page_chat_js_size;
extern const unsigned char moestro_page_common_js[];
extern const unsigned long moestro_page_common_js_size;
extern const unsigned char moestro_page_live_js[];
extern const unsigned long moestro_page_live_js_size;
extern const unsigned char moestro_page_map_js[];
extern const unsigned long moestro_page_map_js_size;

namespace moestro {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr const char* kScript = "text/javascript; charset=utf-8";

std::string_view Bytes(const unsigned char* begin, unsigned long size) {
  return {reinterpret_cast<const char*>(begin), size};
}

}  // namespace

const PageFile* FindPageFile(std::string_view path) {
  static const std::array files = {
      PageFile{"/", "text/html; charset=utf-8", Bytes(moestro_page_html, moestro_page_html_size)},
      PageFile{"/page.css", "text/css; charset=utf-8",
               Bytes(moestro_page_css, moestro_page_css_size)},
      PageFile{"/page.js", kScript, Bytes(moestro_page_js, moestro_page_js_size)},
      PageFile{"/chat.js", kScript, Bytes(moestro_page_chat_js, moestro_page_chat_js_size)},
      PageFile{"/common.js", kScript, Bytes(moestro_page_common_js, moestro_page_common_js_size)},
      PageFile{"/live.js", kScript, Bytes(moestro_page_live_js, moestro_page_live_js_size)},
      PageFile{"/map.js", kScript, Bytes(moestro_page_map_js, moestro_page_map_js_size)},
  };
  const auto found = std::ranges::find(files, path, &PageFile::path);
  return found == files.end() ? nullptr : &*found;
}

HttpReply ReplyOf(const PageFile& file) {
  return {.type = std::string(file.type),
          .body = std::string(file.bytes),
          .headers = {{"Content-Security-Policy", kPolicy},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

}  // namespace moestro
