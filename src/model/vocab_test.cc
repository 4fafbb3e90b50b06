// SPDX-License-Identifier: MIT
#include "model/vocab.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class VocabTest : public testing::Test {
 protected:
  Result<Vocab> Load(const GgufBuilder& builder) const {
    const std::string path = (folder_.path() / "model.gguf").string();
    builder.Write(path);
    return Vocab::Load(path);
  }
  static GgufBuilder ByteLevel() {
    GgufBuilder file = SmallMoe("llama");
    AddByteLevelVocabulary(file);
    return file;
  }
  // <unk>, <s>, </s>, 256 byte tokens and one word.
  static GgufBuilder SentencePiece() {
    std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
    std::vector<int32_t> types{2, 3, 3};
    for (int b = 0; b < 256; ++b) {
      tokens.push_back(Format("<0x{:02X}>", b));
      types.push_back(6);
    }
    for (const char* piece : {"\xE2\x96\x81", "h", "i", "hi", "\xE2\x96\x81hi"}) {
      tokens.emplace_back(piece);
      types.push_back(1);
    }
    GgufBuilder file = SmallMoe("llama");
    file.Set("tokenizer.ggml.model", "llama")
        .SetStrings("tokenizer.ggml.tokens", tokens)
        .SetFloats("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0F))
        .SetInts("tokenizer.ggml.token_type", types);
    return file;
  }
  void ExpectError(const GgufBuilder& builder, Errc code, const std::string& words) const {
    const auto vocab = Load(builder);
    ASSERT_FALSE(vocab) << words;
    EXPECT_EQ(vocab.error().code, code) << vocab.error().message;
    EXPECT_NE(vocab.error().message.find(words), std::string::npos) << vocab.error().message;
    EXPECT_EQ(vocab.error().message.find('\n'), std::string::npos) << vocab.error().message;
  }

  TempFolder folder_;
};

std::string Join(const Vocab& vocab, const std::vector<Token>& tokens) {
  std::string text;
  for (const Token token : tokens) text += vocab.Piece(token);
  return text;
}

TEST_F(VocabTest, TokenizesByteLevelVocabularies) {
  const auto vocab = Load(ByteLevel());
  ASSERT_TRUE(vocab) << vocab.error().message;
  EXPECT_TRUE(vocab->has_text());
  EXPECT_EQ(vocab->size(), 300U);
  EXPECT_TRUE(vocab->is_end(1));
  EXPECT_FALSE(vocab->is_end(2));
  EXPECT_FALSE(vocab->is_end(-1));
  EXPECT_FALSE(vocab->is_end(1 << 30));
  EXPECT_NE(vocab->raw(), nullptr);
  const Token hello = 261;
  EXPECT_EQ(vocab->Tokenize("hello", true, false).value(), (std::vector<Token>{0, hello}));
  EXPECT_EQ(vocab->Tokenize("hello", false, false).value(), std::vector<Token>{hello});
  EXPECT_EQ(vocab->Tokenize("", false, false).value(), std::vector<Token>{});
  EXPECT_EQ(vocab->Tokenize("</s>", false, true).value(), std::vector<Token>{1});
  EXPECT_NE(vocab->Tokenize("</s>", false, false).value(), std::vector<Token>{1});
}

TEST_F(VocabTest, WhatATextSpellsIsNotAddedToIt) {
  constexpr Token kBegin = 0;
  constexpr Token kEnd = 1;
  constexpr Token kHello = 261;
  GgufBuilder file = ByteLevel();
  file.Set("tokenizer.ggml.add_eos_token", true);
  const auto vocab = Load(file);
  ASSERT_TRUE(vocab) << vocab.error().message;
  const auto tokens = [&](const char* text) { return vocab->Tokenize(text, true, true).value(); };
  using Tokens = std::vector<Token>;
  EXPECT_EQ(tokens("hello"), (Tokens{kBegin, kHello, kEnd}));
  EXPECT_EQ(tokens("hello</s>"), (Tokens{kBegin, kHello, kEnd}));
  EXPECT_EQ(tokens("<s>hello"), (Tokens{kBegin, kHello})) << "a text that begins is complete";
  EXPECT_EQ(tokens("<s>"), Tokens{kBegin});
  EXPECT_EQ(tokens("<s><s>hello"), (Tokens{kBegin, kBegin, kHello})) << "its own";
  EXPECT_EQ(tokens(""), (Tokens{kBegin, kEnd}));
  EXPECT_EQ(vocab->Tokenize("<s>", true, false)->front(), kBegin) << "words do not begin a text";
  EXPECT_GT(vocab->Tokenize("<s>", true, false)->size(), 2U);
  // Where the vocabulary does not search for the spelling, "<s>" is words even with parse_special.
  file.SetInts("tokenizer.ggml.token_type", std::vector<int32_t>(300, 1));
  const auto unmarked = Load(file);
  ASSERT_TRUE(unmarked) << unmarked.error().message;
  EXPECT_EQ(unmarked->Tokenize("<s>hello", true, true)->front(), kBegin);
}

TEST_F(VocabTest, GivesBackWhatItTokenized) {
  const std::string text = "Hello,\tw\xC3\xB6rld \xE4\xB8\x96\xE7\x95\x8C \xF0\x9F\x99\x82\n\n 42!";
  for (const GgufBuilder& builder : {ByteLevel(), SentencePiece()}) {
    const auto vocab = Load(builder);
    ASSERT_TRUE(vocab) << vocab.error().message;
    const auto tokens = vocab->Tokenize(text, true, false);
    ASSERT_TRUE(tokens) << tokens.error().message;
    // SentencePiece puts a space before the first word.
    EXPECT_TRUE(Join(*vocab, *tokens).ends_with(text));
    EXPECT_LE(Join(*vocab, *tokens).size(), text.size() + 1);
  }
}

TEST_F(VocabTest, HasNoBytesForControlTokensAndStrangers) {
  const auto vocab = Load(ByteLevel());
  ASSERT_TRUE(vocab);
  for (const Token token : {0, 1, -1, 300, 1 << 30}) EXPECT_EQ(vocab->Piece(token), "") << token;
}

TEST_F(VocabTest, NamesTheFirstByteThatIsNotUtf8) {
  const auto vocab = Load(ByteLevel());
  ASSERT_TRUE(vocab);
  struct Case {
    std::string text;
    int offset;  // -1: valid
  };
  for (const Case& c : {Case{"\xFF", 0},
                        {"ab\x80", 2},
                        {"a\xC0\xAF", 1},         // overlong
                        {"\xE0\x9F\xBF", 0},      // overlong
                        {"\xED\xA0\x80", 0},      // surrogate
                        {"\xF4\x90\x80\x80", 0},  // above U+10FFFF
                        {"ok \xE4\xB8", 3},       // cut
                        {"\xF0\x9F\x99", 0},      // cut
                        {"\xC3\xA9\xC3", 2},      // cut
                        {"\xED\x9F\xBF\xEE\x80\x80", -1},
                        {"\xF4\x8F\xBF\xBF\xF0\x90\x80\x80", -1},
                        {"\xE0\xA0\x80\xC2\x80\x7F", -1}}) {
    const auto tokens = vocab->Tokenize(c.text, false, false);
    EXPECT_EQ(tokens.has_value(), c.offset < 0) << c.text;
    if (tokens) continue;
    EXPECT_EQ(tokens.error().code, Errc::kInvalidRequest);
    EXPECT_NE(tokens.error().message.find(Format("byte {};", c.offset)), std::string::npos)
        << tokens.error().message;
  }
}

// A vocabulary like those of published files: text as it is, spaces marked, bytes spelled out, one
// expression.
GgufBuilder Gemma4() {
  GgufBuilder file = SmallMoe("gemma4");
  std::vector<std::string> tokens{"<pad>", "<eos>", "<bos>", "<unk>"};
  std::vector<int32_t> types{3, 3, 3, 2};
  for (int b = 0; b < 256; ++b) {
    tokens.push_back(Format("<0x{:02X}>", b));
    types.push_back(6);
  }
  for (const char* piece :
       {"h", "i", "hi", "\xE2\x96\x81", "\xE2\x96\x81h", "\n", "\n\n", "\xC3\xB6"}) {
    tokens.emplace_back(piece);
    types.push_back(1);
  }
  while (tokens.size() < 300) {
    tokens.push_back(Format("<unused{}>", tokens.size()));
    types.push_back(5);
  }
  file.Set("tokenizer.ggml.model", "gemma4")
      .SetStrings("tokenizer.ggml.tokens", tokens)
      .SetInts("tokenizer.ggml.token_type", types)
      .SetStrings("tokenizer.ggml.merges", {"h i", "\xE2\x96\x81 h", "\n \n"})
      .Set("tokenizer.ggml.bos_token_id", 2U)
      .Set("tokenizer.ggml.eos_token_id", 1U)
      .Set("tokenizer.ggml.unknown_token_id", 3U)
      .Set("tokenizer.ggml.add_bos_token", true);
  return file;
}

TEST_F(VocabTest, TokenizesAsGemma4) {
  const auto vocab = Load(Gemma4());
  ASSERT_TRUE(vocab) << vocab.error().message;
  for (const std::string text : {"hi hi", "\n\nhi\n", "h\xC3\xB6 \xE4\xB8\x96\t!"}) {
    const auto tokens = vocab->Tokenize(text, true, true);
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_EQ(tokens->front(), 2);
    EXPECT_EQ(Join(*vocab, *tokens), text);
  }
  EXPECT_EQ(vocab->Tokenize("<bos>hi", true, true)->size(), 2U);
}

// libllama decides which kinds exist; no kind ends the process, whatever is missing.
TEST_F(VocabTest, EveryKindThatLibllamaKnowsIsTakenOrASentence) {
  for (const char* kind : {"llama", "gpt2", "t5", "plamo2", "plamo3", "gemma4", "hybriddna"}) {
    for (GgufBuilder (*make)() : {&ByteLevel, &SentencePiece, &Gemma4}) {
      GgufBuilder file = make();
      file.Set("tokenizer.ggml.model", kind);
      constexpr const char* kLeftOut[] = {"nothing", "token_type", "scores", "merges"};
      for (size_t left_out = 0; left_out < std::size(kLeftOut); ++left_out) {
        const std::string key = std::string("tokenizer.ggml.") + kLeftOut[left_out];
        if (gguf_find_key(file.raw(), key.c_str()) >= 0) file.Remove(key);
        const auto vocab = Load(file);
        if (!vocab) {
          EXPECT_EQ(vocab.error().message.find('\n'), std::string::npos) << vocab.error().message;
          continue;
        }
        for (const std::string text :
             {"", "hello  w\xC3\xB6rld\n\t 42</s>", "\xE2\x96\x81", "<s>"}) {
          for (const bool special : {false, true}) {
            const auto tokens = vocab->Tokenize(text, special, special);
            if (!tokens) continue;
            for (const Token token : *tokens) {
              EXPECT_LT(token, static_cast<Token>(vocab->size())) << kind;
              EXPECT_GE(token, 0) << kind;
              vocab->Piece(token);
            }
          }
        }
      }
    }
  }
  ExpectError(ByteLevel().Set("tokenizer.ggml.model", "rwkv"), Errc::kUnsupported, "rwkv");
  ExpectError(ByteLevel().Set("tokenizer.ggml.model", "unheard\x1b[31m"), Errc::kInvalidFile,
              "libllama cannot read the vocabulary");
}

TEST_F(VocabTest, BertsTextsBeginAndEndAsItsModelsLearned) {
  GgufBuilder file = SmallMoe("llama");
  AddBertVocabulary(file);
  const auto vocab = Load(file);
  ASSERT_TRUE(vocab) << vocab.error().message;
  EXPECT_EQ(*vocab->Tokenize("Hello", true, false), (std::vector<Token>{2, 56, 3}));
  EXPECT_EQ(*vocab->Tokenize("", true, false), (std::vector<Token>{2, 3}));
  EXPECT_EQ(*vocab->Tokenize("hello", false, false), (std::vector<Token>{56}));
  EXPECT_EQ(vocab->longest_token_bytes(), 0U);  // an unknown word is one token
}

TEST_F(VocabTest, BertsTokensAreCheckedWhereLibllamaEndsTheProcess) {
  const auto bert = [] {
    GgufBuilder file = SmallMoe("llama");
    AddBertVocabulary(file);
    return file;
  };
  std::vector<int32_t> types(59, 1);
  types[7] = 6;
  ExpectError(bert().SetInts("tokenizer.ggml.token_type", types), Errc::kUnsupported,
              "tokens for bytes");
  ExpectError(bert().Set("tokenizer.ggml.unknown_token_id", 59U), Errc::kInvalidFile,
              "unknown words are token 59 of 59");
  ExpectError(bert().Remove("tokenizer.ggml.unknown_token_id"), Errc::kInvalidFile,
              "unknown words are token 100 of 59");
  ExpectError(bert().Remove("tokenizer.ggml.seperator_token_id"), Errc::kInvalidFile,
              "adds a begin or end token");
}

// longest_token_bytes() makes it certain that a long text has more tokens than a context.
TEST_F(VocabTest, KnowsHowManyBytesATokenMayStandFor) {
  EXPECT_EQ(Load(ByteLevel())->longest_token_bytes(), 11U);     // <unused299>
  EXPECT_EQ(Load(SentencePiece())->longest_token_bytes(), 6U);  // <0x00>
  EXPECT_EQ(Load(SmallMoe("olmoe"))->longest_token_bytes(), 0U);
  // Bytes without a token vanish from a text.
  EXPECT_EQ(Load(ByteLevel()
                     .SetStrings("tokenizer.ggml.tokens", {"<s>", "</s>", "a", "b"})
                     .SetInts("tokenizer.ggml.token_type", {3, 3, 1, 1}))
                ->longest_token_bytes(),
            0U);
}

TEST_F(VocabTest, KnowsModelsWithoutText) {
  const auto vocab = Load(SmallMoe("olmoe"));
  ASSERT_TRUE(vocab) << vocab.error().message;
  EXPECT_FALSE(vocab->has_text());
  EXPECT_EQ(vocab->size(), 300U);
  EXPECT_EQ(vocab->Piece(5), "");
  EXPECT_NE(vocab->raw(), nullptr);
  EXPECT_FALSE(vocab->is_end(5));
  EXPECT_EQ(vocab->Tokenize("hello", true, false).error().code, Errc::kInvalidRequest);
  EXPECT_FALSE(vocab->has_chat_template());
}

TEST_F(VocabTest, HasTheModelsChatTemplate) {
  const auto vocab = Load(ByteLevel().Set("tokenizer.chat_template", "{{ unheard of }}"));
  ASSERT_TRUE(vocab);
  EXPECT_TRUE(vocab->has_chat_template());
  EXPECT_EQ(vocab->chat_template(), "{{ unheard of }}");
}

TEST_F(VocabTest, RefusesVocabulariesThatLibllamaWouldAbortOn) {
  ExpectError(ByteLevel().Set("tokenizer.ggml.model", "rwkv"), Errc::kUnsupported, "rwkv");
  ExpectError(ByteLevel().Set("tokenizer.ggml.pre", "whitespace"), Errc::kUnsupported,
              "whitespace");
  ExpectError(ByteLevel().Remove("tokenizer.ggml.model"), Errc::kInvalidFile,
              "tokenizer.ggml.model");
  ExpectError(ByteLevel().Remove("tokenizer.ggml.tokens"), Errc::kInvalidFile,
              "tokenizer.ggml.tokens");
  ExpectError(ByteLevel().SetInts("tokenizer.ggml.tokens", std::vector<int32_t>(300, 0)),
              Errc::kInvalidFile, "tokenizer.ggml.tokens");
  ExpectError(ByteLevel().Set("tokenizer.ggml.tokens", "text"), Errc::kInvalidFile,
              "tokenizer.ggml.tokens");
  ExpectError(ByteLevel().SetStrings("tokenizer.ggml.tokens", {"a", "b", "a"}), Errc::kInvalidFile,
              "tokens 0 and 2");
  ExpectError(ByteLevel().SetStrings("tokenizer.ggml.tokens", {"a", "", "[EMPTY_1]"}),
              Errc::kInvalidFile, "tokens 1 and 2");
  ExpectError(ByteLevel().SetInts("tokenizer.ggml.token_type", {1, 1}), Errc::kInvalidFile,
              "token_type");
  ExpectError(SentencePiece().SetFloats("tokenizer.ggml.scores", {1, 1}), Errc::kInvalidFile,
              "scores");
  ExpectError(SentencePiece().Set("tokenizer.ggml.scores", 1U), Errc::kInvalidFile, "scores");
  ExpectError(ByteLevel().Set("tokenizer.ggml.merges", 1U), Errc::kInvalidFile, "merges");
  ExpectError(ByteLevel().SetStrings("tokenizer.ggml.tokens", {std::string(60000, '~')}),
              Errc::kInvalidFile, "far longer");
  ExpectError(SmallMoe("llama").Set("llama.vocab_size", 0xFFFFFFFFU), Errc::kInvalidFile,
              "vocab_size");
}

TEST_F(VocabTest, ReadsTokensAsLibllamaDoes) {
  const std::string path = (folder_.path() / "zero.gguf").string();
  ByteLevel()
      .SetStrings("tokenizer.ggml.tokens", {"a", "twin1", "twin2"})
      .SetInts("tokenizer.ggml.token_type", {1, 1, 1})
      .Write(path);
  std::string bytes = ReadBytes(path);
  for (const char* token : {"twin1", "twin2"}) bytes[bytes.find(token) + 4] = '\0';
  WriteBytes(path, bytes);
  const auto vocab = Vocab::Load(path);
  ASSERT_FALSE(vocab);
  EXPECT_NE(vocab.error().message.find("tokens 1 and 2"), std::string::npos)
      << vocab.error().message;
}

TEST_F(VocabTest, PassesOnWhatLibllamaSays) {
  ExpectError(ByteLevel().Remove("tokenizer.ggml.merges"), Errc::kInvalidFile, "merges");
  ExpectError(ByteLevel().Set("tokenizer.ggml.pre", "unheard-of"), Errc::kInvalidFile,
              "unheard-of");
}

TEST_F(VocabTest, SurvivesAVocabularyWithoutBytes) {
  const auto vocab = Load(SentencePiece()
                              .SetStrings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"})
                              .SetInts("tokenizer.ggml.token_type", {2, 3, 3, 1})
                              .SetFloats("tokenizer.ggml.scores", {0, 0, 0, 0}));
  if (!vocab) GTEST_SKIP() << "libllama refuses it itself: " << vocab.error().message;
  const auto tokens = vocab->Tokenize("xyz", true, false);
  ASSERT_FALSE(tokens);
  EXPECT_EQ(tokens.error().code, Errc::kInvalidFile) << tokens.error().message;
}

TEST_F(VocabTest, RefusesASpecialTokenThatDoesNotExist) {
  // SentencePiece vocabularies begin with token 1 by default.
  ExpectError(SentencePiece()
                  .SetStrings("tokenizer.ggml.tokens", {"a"})
                  .SetInts("tokenizer.ggml.token_type", {1})
                  .SetFloats("tokenizer.ggml.scores", {0}),
              Errc::kInvalidFile, "");
}

}  // namespace
}  // namespace moestro
