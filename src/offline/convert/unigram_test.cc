// SPDX-License-Identifier: MIT
// Vocabularies from both kinds of file.
#include "offline/convert/unigram.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/support/switch_folder_testing.h"

namespace moestro {
namespace {

const std::string kTable("\x04\0\0\0abcdtext\0", 13);

void ExpectBadPieces(const std::vector<HandPiece>& pieces, const std::string& part) {
  const auto parsed = ParseSentencePiece(SentencePieceBytes(pieces), "spiece.model");
  ASSERT_FALSE(parsed) << part;
  EXPECT_TRUE(parsed.error().message.contains(part)) << parsed.error().message;
}

TEST(SentencePieceTest, APieceHasTextScoreAndKind) {
  const auto vocab = ParseSentencePiece(SentencePieceBytes(HandPieces(), kTable), "spiece.model");
  ASSERT_TRUE(vocab) << vocab.error().message;
  ASSERT_EQ(vocab->pieces.size(), 30U);
  EXPECT_EQ(vocab->pieces[1].text, "</s>");
  EXPECT_EQ(vocab->pieces[1].kind, PieceKind::kControl);
  EXPECT_EQ(vocab->pieces[2].kind, PieceKind::kUnknown);
  EXPECT_EQ(vocab->pieces[3].text, "\u2581");
  EXPECT_EQ(vocab->pieces[4].score, -3.0F);
  EXPECT_EQ(vocab->charsmap, kTable);
  EXPECT_TRUE(vocab->adds_space_prefix);
  EXPECT_TRUE(vocab->removes_extra_spaces);
}

TEST(SentencePieceTest, EveryBeginningOfAFileIsAnAnswer) {
  const std::string whole = SentencePieceBytes(HandPieces(), kTable);
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto parsed = ParseSentencePiece(whole.substr(0, n), "spiece.model");
    if (!parsed) {
      EXPECT_TRUE(parsed.error().message.starts_with("spiece.model"));
    }
  }
}

TEST(SentencePieceTest, WhatIsNoVocabularyIsRefused) {
  std::vector<HandPiece> pieces = HandPieces();
  pieces[5].text = "a";
  ExpectBadPieces(pieces, "'a' is there twice");
  pieces = HandPieces();
  pieces[5].text = "";
  ExpectBadPieces(pieces, "piece 5 is empty");
  pieces[5].text = "\xFF";
  ExpectBadPieces(pieces, "piece 5 is empty or no UTF-8");
  pieces = HandPieces();
  pieces[2].kind = 1;
  ExpectBadPieces(pieces, "0 pieces stand for unknown text");
  pieces = HandPieces();
  pieces[9].score = std::numeric_limits<float>::quiet_NaN();
  ExpectBadPieces(pieces, "no number");
  pieces = HandPieces();
  pieces[9].kind = 7;
  ExpectBadPieces(pieces, "damaged");
  ExpectBadPieces({}, "damaged");
  const auto bpe = ParseSentencePiece(SentencePieceBytes(HandPieces(), "", 2), "spiece.model");
  ASSERT_FALSE(bpe);
  EXPECT_EQ(bpe.error().code, Errc::kUnsupported);
  for (const std::string& table :
       {std::string("abc"), std::string("\xF0\xFF\xFF\xFF..", 6),
        std::string("\x04\0\0\0abcdtext", 12), std::string("\x03\0\0\0abctext\0", 12)}) {
    const auto parsed = ParseSentencePiece(SentencePieceBytes(HandPieces(), table), "spiece.model");
    ASSERT_FALSE(parsed);
    EXPECT_TRUE(parsed.error().message.contains("precompiled_charsmap"));
  }
}

// What is around a vocabulary of four pieces and a sentinel.
Json TokenizerJson(const std::string& normalizer, const std::string& split,
                   const std::string& added) {
  return Json::Parse(R"({"added_tokens":[{"id":0,"content":"<pad>","special":true},)" + added +
                     R"(],"normalizer":)" + normalizer +
                     R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + split +
                     R"({"type":"Metaspace","replacement":"x","prepend_scheme":"always"}]},)" +
                     R"("model":{"type":"Unigram","unk_id":1,"vocab":[["<pad>",0],["<unk>",0],)" +
                     R"(["a",-1.5],["<0x41>",-2],["<extra_id_0>",0]]}})")
      .value();
}
const std::string kSentinelToken = R"({"id":4,"content":"<extra_id_0>","special":true})";
const std::string kBySpaces = R"({"type":"WhitespaceSplit"},)";

TEST(TokenizerJsonTest, AnObjectInPlaceOfAListIsRefused) {
  const auto parse = [](const std::string& parts) {
    const std::string model =
        R"("model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-5]]})";
    return ParseTokenizerJson(Json::Parse("{" + parts + "," + model + "}").value(), "t.json");
  };
  const auto added = parse(R"("added_tokens":{"type":"Precompiled"})");
  ASSERT_FALSE(added);
  EXPECT_TRUE(added.error().message.contains("added tokens")) << added.error().message;
  EXPECT_FALSE(parse(R"("normalizer":{"type":"Sequence","normalizers":{"a":1}})"));
  EXPECT_FALSE(parse(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":{"a":1,"b":2}})"));
}

TEST(TokenizerJsonTest, AddedTokensSayWhatAPieceIs) {
  const auto vocab = ParseTokenizerJson(
      TokenizerJson(R"({"type":"Precompiled","precompiled_charsmap":"BAAAAGFiY2R0ZXh0AA=="})",
                    kBySpaces, kSentinelToken + R"(,{"id":5,"content":"new","special":false})"),
      "tokenizer.json");
  ASSERT_TRUE(vocab) << vocab.error().message;
  ASSERT_EQ(vocab->pieces.size(), 6U);
  EXPECT_EQ(vocab->pieces[0].kind, PieceKind::kControl);
  EXPECT_EQ(vocab->pieces[1].kind, PieceKind::kUnknown);
  EXPECT_EQ(vocab->pieces[2].score, -1.5F);
  EXPECT_EQ(vocab->pieces[3].kind, PieceKind::kByte);
  EXPECT_EQ(vocab->pieces[4].kind, PieceKind::kUserDefined);
  EXPECT_EQ(vocab->pieces[5].text, "new");
  EXPECT_EQ(vocab->charsmap, kTable);
  EXPECT_TRUE(vocab->adds_space_prefix);
  EXPECT_TRUE(vocab->removes_extra_spaces);
  const auto bare = ParseTokenizerJson(TokenizerJson("null", "", kSentinelToken), "tokenizer.json");
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_EQ(bare->charsmap, "");
  EXPECT_FALSE(bare->removes_extra_spaces);
}

TEST(TokenizerJsonTest, WhatIsNoVocabularyIsRefused) {
  const auto expect_refused = [](const Json& json, const std::string& part) {
    const auto parsed = ParseTokenizerJson(json, "tokenizer.json");
    ASSERT_FALSE(parsed) << part;
    EXPECT_TRUE(parsed.error().message.contains(part)) << parsed.error().message;
  };
  expect_refused(TokenizerJson("null", "", R"({"id":9,"content":"far"})"), "'far'");
  expect_refused(TokenizerJson("null", "", R"({"id":2,"content":"b"})"), "in the place of 'a'");
  expect_refused(TokenizerJson("null", "", R"({"id":-1,"content":"b"})"), "fitting id");
  expect_refused(TokenizerJson("null", "", R"({"id":5,"content":"a"})"), "there twice");
  expect_refused(
      TokenizerJson(R"({"type":"Precompiled","precompiled_charsmap":"!"})", "", kSentinelToken),
      "base64");
  for (const char* text :
       {"{}", R"({"model":{}})", R"({"model":{"type":"BPE"}})", R"({"model":{"type":"Unigram"}})",
        R"({"model":{"type":"Unigram","vocab":[]}})", R"({"model":{"type":"Unigram","vocab":[1]}})",
        R"({"model":{"type":"Unigram","vocab":[["a",1]]}})",
        R"({"model":{"type":"Unigram","vocab":[["a",1]],"unk_id":1}})",
        R"({"model":{"type":"Unigram","vocab":[["a",1]],"unk_id":0}})"}) {
    expect_refused(Json::Parse(text).value(), "tokenizer.json has");
  }
}

}  // namespace
}  // namespace moestro
