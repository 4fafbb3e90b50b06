// SPDX-License-Identifier: MIT
#include "api/place_bodies.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace moestro {
namespace {

ApiResult<std::string> FileOf(const std::string& name) {
  return ParseTextFile(Json::Object().Set("filename", name).Dump());
}

TEST(PlaceBodies, PlainFileNamesAreTaken) {
  for (const std::string name : {"a", "chat-1.bin", "mit Leerzeichen", "\u00e4\u00f6"}) {
    const auto file = FileOf(name);
    ASSERT_TRUE(file) << name;
    EXPECT_EQ(*file, name);
  }
  EXPECT_TRUE(FileOf(std::string(200, 'x')));
}

TEST(PlaceBodies, NamesThatCouldLeaveTheFolderAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../a"), std::string("/a"),
        std::string("a/b"), std::string("a\\b"), std::string("a..b"), std::string(".hidden"),
        std::string("a\nb"), std::string("a\0b", 3), std::string("\x7F"), std::string(201, 'x')}) {
    const auto file = FileOf(name);
    ASSERT_FALSE(file) << name;
    EXPECT_EQ(file.error().status, 400);
    EXPECT_EQ(file.error().param, "filename");
    EXPECT_LT(file.error().message.size(), 300U);
  }
  for (const std::string body : {"{}", "", "[]", R"({"filename":5})"}) {
    EXPECT_EQ(ParseTextFile(body).error().status, 400) << body;
  }
}

TEST(PlaceBodies, ActionsHaveThreeNames) {
  EXPECT_EQ(ParsePlaceAction("save"), PlaceAction::kSave);
  EXPECT_EQ(ParsePlaceAction("restore"), PlaceAction::kRestore);
  EXPECT_EQ(ParsePlaceAction("erase"), PlaceAction::kErase);
  for (const std::string action : {"", "Save", "load"}) {
    const auto parsed = ParsePlaceAction(action);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().param, "action");
  }
}

TEST(PlaceBodies, AnswersHaveTheShapesOfLlamaServer) {
  const PlaceFigures figures{.tokens = 84, .bytes = 14309796, .seconds = 0.0625};
  EXPECT_EQ(PlaceBody(PlaceAction::kSave, 1, "f", figures),
            R"({"id_slot":1,"filename":"f","n_saved":84,"n_written":14309796,)"
            R"("timings":{"save_ms":62.5}})");
  EXPECT_EQ(PlaceBody(PlaceAction::kRestore, 0, "f", figures),
            R"({"id_slot":0,"filename":"f","n_restored":84,"n_read":14309796,)"
            R"("timings":{"restore_ms":62.5}})");
  EXPECT_EQ(PlaceBody(PlaceAction::kErase, 2, "", figures), R"({"id_slot":2,"n_erased":84})");
}

}  // namespace
}  // namespace moestro
