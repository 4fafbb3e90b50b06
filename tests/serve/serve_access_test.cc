// SPDX-License-Identifier: MIT
// The server as a program: who may ask, and who may read what it keeps. docs/security.md names
// these tests.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/serve/serve_testing.h"

namespace moestro::testing {
namespace {

TEST_F(ServeTest, WantsAKeyIfItHasOne) {
  const std::string keys = folder_.File("keys");
  std::ofstream(keys) << "first\nsecond\n";
  Serve({"--api-key-file", keys});
  EXPECT_TRUE(Ask(port_, Get("/v1/models")).starts_with("HTTP/1.1 401"));
  EXPECT_TRUE(
      Ask(port_, Get("/v1/models", "Authorization: Bearer firs\r\n")).starts_with("HTTP/1.1 401"));
  EXPECT_TRUE(
      Ask(port_, Get("/metrics", "Authorization: Bearer wrong\r\n")).starts_with("HTTP/1.1 401"));
  EXPECT_TRUE(Ask(port_, Get("/v1/models", "Authorization: Bearer second\r\n"))
                  .starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(Ask(port_, Get("/v1/models", "x-api-key: first\r\n")).starts_with("HTTP/1.1 200"));
  // The scheme's name is not case-sensitive.
  for (const std::string scheme : {"bearer ", "BEARER  "}) {
    EXPECT_TRUE(Ask(port_, Get("/v1/models", "Authorization: " + scheme + "second\r\n"))
                    .starts_with("HTTP/1.1 200"));
    EXPECT_TRUE(Ask(port_, Get("/v1/models", "Authorization: " + scheme + "third\r\n"))
                    .starts_with("HTTP/1.1 401"));
  }
  EXPECT_TRUE(Ask(port_, Get("/health")).starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(Ask(port_, Get("/page.js")).starts_with("HTTP/1.1 200"));
  EXPECT_EQ(End().exit_code, 0);
}

// A request without a body.
std::string Line(std::string_view method, std::string_view path, std::string_view headers) {
  return std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nConnection: close\r\n" +
         std::string(headers) + "\r\n";
}

// Monitors and Ollama's client ask so whether somebody is there.
TEST_F(ServeTest, HeadIsAnsweredWhereGetIs) {
  Serve({"--alias", "cat"});
  for (const char* path : {"/", "/health", "/v1/models", "/v1/models/cat", "/props", "/slots",
                           "/metrics", "/api/tags", "/api/ps", "/api/version"}) {
    const std::string reply = Ask(port_, Line("HEAD", path, "Host: localhost\r\n"));
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << path << reply;
    EXPECT_TRUE(reply.contains("\r\nContent-Length: ")) << path << reply;
    EXPECT_TRUE(reply.ends_with("\r\n\r\n")) << path << reply;
  }
  EXPECT_TRUE(Ask(port_, Line("HEAD", "/v1/models/dog", "Host: localhost\r\n"))
                  .starts_with("HTTP/1.1 404"));
  const std::string posted = Ask(port_, Line("HEAD", "/v1/completions", "Host: localhost\r\n"));
  EXPECT_TRUE(posted.starts_with("HTTP/1.1 405")) << posted;
  EXPECT_TRUE(posted.contains("\r\nAllow: POST\r\n")) << posted;
  EXPECT_TRUE(Ask(port_, Post("/v1/models", "{}")).contains("\r\nAllow: GET, HEAD\r\n"));
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeTest, AKeyFileThatOthersCanReadIsSaid) {
  namespace fs = std::filesystem;
  const std::string keys = folder_.File("keys");
  std::ofstream(keys) << "key\n";
  fs::permissions(keys, fs::perms::owner_read | fs::perms::others_read);
  Serve({"--api-key-file", keys});
  const Finished wide = End();
  EXPECT_TRUE(wide.err.contains("chmod 600")) << wide.err;
  fs::permissions(keys, fs::perms::owner_read);
  Serve({"--api-key-file", keys});
  const Finished narrow = End();
  EXPECT_FALSE(narrow.err.contains("chmod")) << narrow.err;
}

TEST_F(ServeTest, KeysAreInNoMessage) {
  const std::string keys = folder_.File("keys");
  std::ofstream(keys) << "secret-of-ours\n";
  Serve({"--api-key-file", keys, "--verbose"});
  for (const char* key : {"secret-of-ours", "secret-of-theirs", "secret-of-\xff"}) {
    for (const char* name : {"Authorization: Bearer ", "Authorization: Basic ", "x-api-key: "}) {
      const std::string header = std::string(name) + key + "\r\n";
      for (const std::string& request :
           {Get("/v1/models", header), Get("/absent", header), Post("/v1/completions", "{", header),
            Line("PUT", "/v1/models", "Host: 127.0.0.1\r\n" + header)}) {
        EXPECT_FALSE(Ask(port_, request).contains("secret-of")) << request;
      }
    }
  }
  const Finished finished = End();
  EXPECT_FALSE((finished.out + finished.err).contains("secret-of")) << finished.err;
}

TEST_F(ServeTest, OtherPagesMayAskOnlyIfTheyAreNamed) {
  const std::string origin = "Origin: http://a.example\r\n";
  const std::string prompt = R"({"prompt":"Once","max_tokens":1})";
  Serve();
  for (const std::string& request :
       {Get("/v1/models", origin), Get("/slots", origin), Get("/health", origin), Get("/", origin),
        Post("/v1/completions", prompt, origin + "Content-Type: text/plain\r\n"),
        Post("/slots/0?action=erase", "", origin), Get("/v1/models", "Origin: null\r\n"),
        Line("OPTIONS", "/v1/completions", "Host: 127.0.0.1\r\n" + origin),
        Get("/slots", "Sec-Fetch-Site: cross-site\r\n")}) {
    const std::string reply = Ask(port_, request);
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 403")) << request << reply;
    EXPECT_FALSE(reply.contains("Access-Control")) << request << reply;
  }
  EXPECT_TRUE(Ask(port_, Get("/metrics")).contains("\nmoestro_tokens_predicted_total 0\n"));
  EXPECT_EQ(End().exit_code, 0);
}

// Whatever its status: a page that cannot read an error shows its user nothing.
TEST_F(ServeTest, ListedPagesCanReadEveryReply) {
  const std::string origin = "Origin: http://b.example\r\n";
  Serve({"--cors", "http://a.example, http://b.example"});
  for (const std::string& request :
       {Get("/v1/models", origin), Get("/absent", origin), Post("/v1/completions", "{", origin),
        Post("/v1/models", "", origin), Line("GET", "/v1/models", "Host: x\r\n" + origin),
        Line("OPTIONS", "/v1/completions", "Host: 127.0.0.1\r\n" + origin),
        Line("POST", "/", "Host: 127.0.0.1\r\nContent-Length: 99999999\r\n" + origin),
        Line("PUT", "/v1/models", "Host: 127.0.0.1\r\n" + origin)}) {
    const std::string reply = Ask(port_, request);
    EXPECT_TRUE(reply.contains("Access-Control-Allow-Origin: http://b.example\r\n"))
        << request << reply;
    EXPECT_TRUE(reply.contains("Vary: Origin\r\n")) << reply;
    EXPECT_FALSE(reply.contains("Allow-Credentials"));
  }
  const std::string preflight =
      Ask(port_, Line("OPTIONS", "/v1/completions",
                      "Host: 127.0.0.1\r\nAccess-Control-Request-Headers: x-a, x-b\r\n" + origin));
  EXPECT_TRUE(preflight.contains("Access-Control-Allow-Headers: x-a, x-b\r\n")) << preflight;
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeTest, OtherNamesThanItsOwnAreRefused) {
  Serve({"--allowed-host", "llm.example"});
  const auto status = [&](const std::string& head) {
    return Ask(port_, head + "Connection: close\r\n\r\n").substr(9, 3);
  };
  for (const char* host : {"127.0.0.1", "[::1]:80", "localhost", "LLM.example:99"}) {
    EXPECT_EQ(status("GET /v1/models HTTP/1.1\r\nHost: " + std::string(host) + "\r\n"), "200")
        << host;
  }
  const std::string reply = Ask(port_, Line("GET", "/slots", "Host: evil.example\r\n"));
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 421")) << reply;
  EXPECT_TRUE(reply.contains("--allowed-host evil.example")) << reply;
  const std::string evil = "Host: evil.example\r\n";
  const std::string ours = "Host: 127.0.0.1\r\n";
  EXPECT_EQ(status("GET / HTTP/1.1\r\n" + evil), "421");
  EXPECT_EQ(status("GET /health HTTP/1.1\r\n" + evil), "421");
  EXPECT_EQ(status("POST /v1/completions HTTP/1.1\r\nContent-Length: 0\r\n" + evil), "421");
  EXPECT_EQ(status("GET /slots HTTP/1.1\r\nX-Forwarded-Host: 127.0.0.1\r\n" + evil), "421");
  EXPECT_EQ(status("GET /slots HTTP/1.1\r\nForwarded: host=127.0.0.1\r\n" + evil), "421");
  // Two hosts: whichever a proxy believed, it is not taken.
  EXPECT_EQ(status("GET /slots HTTP/1.1\r\n" + ours + evil), "400");
  EXPECT_EQ(status("GET /slots HTTP/1.1\r\n" + evil + ours), "400");
  EXPECT_EQ(status("GET /slots HTTP/1.1\r\n" + ours + ours), "400");
  EXPECT_EQ(status("GET /slots HTTP/1.1\r\nOrigin: http://127.0.0.1\r\nOrigin: null\r\n" + ours),
            "400");
  // A line so long that it goes past the parser.
  EXPECT_EQ(status("GET /slots HTTP/1.1\r\n" + ours + "Host: " + std::string(9000, 'a') + "\r\n"),
            "400");
  // The host may stand in the target, and then that one is meant.
  EXPECT_EQ(status("GET http://evil.example/slots HTTP/1.1\r\n" + ours), "400");
  EXPECT_EQ(status("GET http://127.0.0.1/slots HTTP/1.1\r\n" + ours), "400");
  EXPECT_EQ(status("GET http://127.0.0.1/slots HTTP/1.1\r\n" + evil), "400");
  EXPECT_EQ(status("GET //evil.example/slots HTTP/1.1\r\n" + ours), "404");
  // None: an old program.
  EXPECT_EQ(status("GET /slots HTTP/1.0\r\n"), "400");
  EXPECT_EQ(status("GET /slots HTTP/1.1\r\n"), "400");
  EXPECT_EQ(status("GET /slots HTTP/1.1\r\nHost:\r\n"), "421");
  EXPECT_EQ(status("GET /health HTTP/1.0\r\n"), "200");
  EXPECT_EQ(End().exit_code, 0);
}

TEST_F(ServeTest, SpellingsThatNoBrowserSendsAreUsageErrors) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--cors", "a.example"},
                                                {"--cors", "http://a.example/"},
                                                {"--cors", "null"},
                                                {"--cors", "*"},
                                                {"--cors", "*,http://a.example"},
                                                {"--allowed-host", "http://a.example"},
                                                {"--allowed-host", "*"}}) {
    const Finished finished = RunToEnd(flags);
    EXPECT_EQ(finished.exit_code, 2) << flags[1];
    EXPECT_TRUE(finished.err.contains(flags[0])) << finished.err;
  }
}

TEST_F(ServeTest, ANameThatBeginsAsLoopbackDoesIsNone) {
  const Finished finished = RunToEnd({"--host", "127.evil.example"});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_TRUE(finished.err.contains("--api-key-file")) << finished.err;
}

std::vector<std::filesystem::path> FilesOf(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry);
  return files;
}

// Prefixes and texts saved by name hold what people wrote.
TEST_F(ServeTest, KeptTextsAreTheirOwnersAlone) {
  namespace fs = std::filesystem;
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  const fs::path folder = folder_.path() / "slots";
  fs::create_directories(folder);
  fs::permissions(folder, fs::perms::owner_all | fs::perms::others_read);
  const fs::path cache = folder_.path() / "moestro";
  const std::string prompt(100, 'x');
  const mode_t mask = umask(0);
  Serve({"--slot-save-path", folder.string()});
  umask(mask);
  const std::string reply =
      Ask(port_, Post("/v1/completions", R"({"max_tokens":3,"prompt":")" + prompt + R"("})"));
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
  const std::string saved = Ask(port_, Post("/slots/0?action=save", R"({"filename":"a"})"));
  EXPECT_TRUE(saved.starts_with("HTTP/1.1 200")) << saved;
  const Finished first = End();
  EXPECT_TRUE(first.err.contains(folder.string())) << first.err;  // it is wider, and that is said
  EXPECT_FALSE(first.err.contains(cache.string())) << first.err;
  EXPECT_EQ(fs::status(cache).permissions() & kOthers, fs::perms::none);
  EXPECT_EQ(fs::status(folder / "a").permissions() & kOthers, fs::perms::none);
  int n_prefixes = 0;
  for (const fs::path& file : FilesOf(cache)) {
    if (file.extension() != ".prefix") continue;
    ++n_prefixes;
    EXPECT_EQ(fs::status(file).permissions() & kOthers, fs::perms::none) << file;
    fs::permissions(file, fs::perms::others_read, fs::perm_options::add);  // an older version's
  }
  EXPECT_GE(n_prefixes, 1);
  fs::permissions(cache, fs::perms::others_exec, fs::perm_options::add);
  Serve();
  const Finished second = End();
  EXPECT_TRUE(second.err.contains(cache.string())) << second.err;
  for (const fs::path& file : FilesOf(cache)) {
    if (file.extension() != ".prefix") continue;
    EXPECT_EQ(fs::status(file).permissions() & kOthers, fs::perms::none) << file;
  }
}

}  // namespace
}  // namespace moestro::testing
