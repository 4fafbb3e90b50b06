// SPDX-License-Identifier: MIT
// What a server writes down about its requests.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>

#include "tests/serve/serve_testing.h"

namespace moestro::testing {
namespace {

size_t CountIn(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST_F(ServeTest, LogsALineOfFiguresForEachRequest) {
  const std::string keys = folder_.File("keys");
  std::ofstream(keys) << "first-secret\n\nsecond-secret\n";
  Serve({"--api-key-file", keys, "--log-requests"});
  const std::string headers = "Authorization: Bearer second-secret\r\nX-Request-Id: mine \"7\"\r\n";
  const std::string body = R"({"prompt":"Once upon a time","max_tokens":5,"temperature":0)";
  EXPECT_TRUE(Ask(port_, Post("/v1/completions", body + "}", headers)).contains(" 200 OK"));
  EXPECT_TRUE(Ask(port_, Post("/v1/completions", body + R"(,"stream":true})", headers))
                  .contains("\r\nX-Request-Id: mine \"7\"\r\n"));
  Ask(port_, Get("/v1/upon?time", headers));
  Ask(port_, Get("/v1/models"));
  const std::string err = End().err;
  const std::string begin = R"("id":"mine \"7\"","key":"key 2","route":")";
  EXPECT_EQ(CountIn(err, begin + R"(/completions","status":200,"total_ms":)"), 2U) << err;
  EXPECT_EQ(CountIn(err, R"("prompt_tokens":)"), 2U) << err;
  EXPECT_EQ(CountIn(err, R"("completion_tokens":5,"queue_ms":)"), 2U) << err;
  EXPECT_EQ(CountIn(err, R"("finish":"length"})"), 2U) << err;
  EXPECT_EQ(CountIn(err, begin + R"(other","status":404,)"), 1U) << err;
  EXPECT_EQ(CountIn(err, R"("route":"/models","status":401,)"), 1U) << err;
  for (const std::string text : {"upon", "secret", "Once"}) EXPECT_FALSE(err.contains(text)) << err;
}

TEST_F(ServeTest, WithoutTheFlagNoRequestIsLogged) {
  Serve();
  Ask(port_, Get("/v1/models"));
  const Finished finished = End();
  EXPECT_FALSE(finished.err.contains("route")) << finished.err;
}

}  // namespace
}  // namespace moestro::testing
