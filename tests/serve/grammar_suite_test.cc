// SPDX-License-Identifier: MIT
// The schemas of the JSON-Schema-Test-Suite (Debian's json-schema-test-suite, draft 7): each is
// refused with a reason, or its grammar allows the valid instances and no invalid one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "schema/schema_grammar.h"
#include "tests/serve/grammar_matcher_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuite = "/usr/share/json-schema-test-suite/tests/draft7";

struct Exception {
  const char* group;
  const char* instance;
};
// Valid instances that are refused.
constexpr std::array<Exception, 3> kExceptions = {{
    // What stands beside $ref is ignored in draft 7, not since 2019-09.
    {"ref overrides any sibling keywords", "ref valid, maxItems ignored"},
    // A fixed object is written in its own order.
    {"const with object", "same object with different property order is valid"},
    {"validation of URIs", "a valid URL "},  // a host of IPv6
}};

Json Read(const fs::path& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto json = Json::Parse(text);
  EXPECT_TRUE(json) << path;
  return json ? std::move(*json) : Json();
}

// As a grammar wants it: keys in the order of the schema's "properties" if it has them, and whole
// numbers without a fraction.
std::string Compact(JsonView value, std::optional<JsonView> schema) {
  if (value.kind() == JsonKind::kNumber) {
    const double number = *value.number();
    constexpr double kExact = 1e15;
    if (number == std::trunc(number) && std::abs(number) < kExact) {
      return Json(static_cast<int64_t>(number)).Dump();
    }
    return value.Dump();
  }
  const auto inside = [&](const char* keyword) {
    return schema ? schema->Find(keyword) : std::nullopt;
  };
  std::string text;
  if (value.kind() == JsonKind::kArray) {
    for (size_t i = 0; i < value.size(); ++i) {
      text += (i > 0 ? "," : "") + Compact(*value.At(i), inside("items"));
    }
    return "[" + text + "]";
  }
  if (value.kind() != JsonKind::kObject) return value.Dump();
  const auto properties = inside("properties");
  std::vector<std::string> order = properties ? properties->keys() : std::vector<std::string>();
  const auto append = [&order](const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      if (!std::ranges::contains(order, key)) order.push_back(key);
    }
  };
  for (size_t i = 0; inside("allOf") && i < inside("allOf")->size(); ++i) {
    if (const auto more = inside("allOf")->At(i)->Find("properties")) append(more->keys());
  }
  append(value.keys());
  for (const std::string& key : order) {
    const auto member = value.Find(key);
    if (!member) continue;
    text += (text.empty() ? "" : ",") + Json(key).Dump() + ":" +
            Compact(*member, properties ? properties->Find(key) : std::nullopt);
  }
  return "{" + text + "}";
}

class SuiteTest : public testing::Test {
 protected:
  void RunFile(const fs::path& path) {
    const Json groups = Read(path);
    for (size_t i = 0; i < groups.size(); ++i) RunGroup(path.filename(), *groups.At(i));
  }

  void RunGroup(const std::string& file, JsonView group) {
    const JsonView schema = *group.Find("schema");
    const std::string name = *group.Find("description")->text();
    GrammarRules rules;
    const auto root = rules.AddSchema(schema.Dump(), "root");
    const JsonView tests = *group.Find("tests");
    ++schemas_;
    if (!root) {
      refusals_ += "  " + file + ", " + name + ": " + root.error().message + "\n";
      const bool is_told =
          root.error().code == Errc::kUnsupported || root.error().code == Errc::kInvalidRequest;
      EXPECT_TRUE(is_told) << name;
      for (size_t i = 0; i < tests.size() && root.error().code == Errc::kInvalidRequest; ++i) {
        EXPECT_FALSE(*tests.At(i)->Find("valid")->boolean())
            << file << ", " << name << ": " << root.error().message;
      }
      return;
    }
    EXPECT_EQ(*root, "root");
    ++supported_;
    for (size_t i = 0; i < tests.size(); ++i) {
      const JsonView test = *tests.At(i);
      const std::string text = Compact(*test.Find("data"), schema);
      const bool is_valid = *test.Find("valid")->boolean();
      const std::string description = *test.Find("description")->text();
      const bool is_exception = std::ranges::any_of(kExceptions, [&](const Exception& e) {
        return name == e.group && description == e.instance;
      });
      ++instances_;
      EXPECT_EQ(matcher_.Allows(rules.Text(), text), is_valid && !is_exception)
          << file << ", " << name << ", " << description << ": " << text << "\nof "
          << schema.Dump();
    }
  }

  GrammarMatcher matcher_;
  int schemas_ = 0;
  int supported_ = 0;
  int instances_ = 0;
  std::string refusals_;
};

TEST_F(SuiteTest, GrammarsAllowWhatSchemasAcceptOrSchemasAreRefused) {
  if (!fs::exists(kSuite)) GTEST_SKIP() << kSuite << " is not installed: make setup-clients";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kSuite)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  for (const char* format : {"date", "date-time", "email", "hostname", "ipv4", "time", "uri"}) {
    files.push_back(fs::path(kSuite) / "optional/format" / (std::string(format) + ".json"));
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) RunFile(file);
  std::printf("%d of %d schemas supported, %d instances\n%s", supported_, schemas_, instances_,
              refusals_.c_str());
  EXPECT_GE(supported_, 79) << "schemas that were supported are refused now";
}

}  // namespace
}  // namespace moestro
