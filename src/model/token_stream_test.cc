// SPDX-License-Identifier: MIT
#include "model/token_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

// Words, scripts, white space of all kinds, signs that pre-tokenizers treat apart, and the special
// tokens of the vocabularies below, whole and in part.
const std::vector<std::string> kSnippets = {"the",
                                            "word",
                                            "Hello",
                                            "hello",
                                            "he",
                                            "l",
                                            "ABCdef",
                                            "'s",
                                            "'ll",
                                            "'",
                                            "'re",
                                            " ",
                                            " ",
                                            " ",
                                            "  ",
                                            "    ",
                                            "\n",
                                            "\n\n",
                                            "\r\n",
                                            "\t",
                                            "\n \n",
                                            " \n",
                                            "\v",
                                            "1",
                                            "42",
                                            "1234567",
                                            "3.14",
                                            ".",
                                            ",",
                                            "!",
                                            "...",
                                            "/",
                                            "/\n",
                                            "(",
                                            ")",
                                            "\"",
                                            "$",
                                            "+=",
                                            "<",
                                            "|",
                                            "`",
                                            "~",
                                            "\xC3\xB6",
                                            "\xC3\xA9",
                                            "\xD1\x81\xD0\xBB\xD0\xBE\xD0\xB2\xD0\xBE",
                                            "\xE4\xB8\x96",
                                            "\xE7\x95\x8C",
                                            "\xE3\x80\x82",
                                            "\xE3\x80\x80",
                                            "\xF0\x9F\x99\x82",
                                            "e\xCC\x81",
                                            "\xC2\xA0",
                                            "\xE2\x80\x83",
                                            "\xE2\x80\xA8",
                                            "\xE2\x96\x81",
                                            "\xE2\x80\x9C",
                                            "</s>",
                                            "<s>",
                                            "<|x y|>",
                                            "<|x",
                                            " y|>",
                                            "@@",
                                            "@",
                                            "one two",
                                            "\x01",
                                            "\x7F",
                                            "\xE0\xA4\x95\xE0\xA4\xBF",
                                            "\xD9\xA3",
                                            "a b c",
                                            "IMGIMGA",
                                            "<0x0A>"};

std::string RandomText(std::mt19937& random, size_t snippets) {
  std::string text;
  for (size_t i = 0; i < snippets; ++i) text += kSnippets[random() % kSnippets.size()];
  return text;
}

class TokenStreamTest : public testing::Test {
 protected:
  std::optional<Vocab> Load(const GgufBuilder& builder) const {
    const std::string path = (folder_.path() / "model.gguf").string();
    builder.Write(path);
    auto vocab = Vocab::Load(path);
    if (!vocab) return std::nullopt;
    return *std::move(vocab);
  }
  TempFolder folder_;
};

// The spelling of a byte in byte-level vocabularies, and of a text.
std::string Spelling(std::string_view text) {
  std::string spelled;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    unsigned code = byte;
    const auto is_kept = [](unsigned b) {
      return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    };
    if (!is_kept(byte)) {
      code = 256;
      for (unsigned b = 0; b < byte; ++b) code += is_kept(b) ? 0 : 1;
    }
    if (code < 0x80) {
      spelled += static_cast<char>(code);
    } else {
      spelled += static_cast<char>(0xC0 | (code >> 6U));
      spelled += static_cast<char>(0x80 | (code & 0x3FU));
    }
  }
  return spelled;
}

// Byte-level BPE with all bytes, words learned from the snippets, and two special tokens: "<|x y|>"
// of two words, and "@@", which is searched in every text.
GgufBuilder ByteLevel(const std::string& pre, uint32_t seed) {
  std::vector<std::string> tokens{"<s>", "</s>", "<|x y|>", "@@"};
  std::vector<int32_t> types{3, 3, 3, 4};
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(Spelling(std::string(1, static_cast<char>(byte))));
  std::vector<std::string> merges;
  std::set<std::string> known(tokens.begin(), tokens.end());
  std::mt19937 random(seed);
  // Adds merges of neighbours in random texts, so that ever longer tokens arise, even ones that no
  // pre-tokenizer would allow.
  for (int i = 0; i < 600; ++i) {
    const std::string text = RandomText(random, 3);
    const size_t begin = random() % text.size();
    const size_t length = 2 + random() % 5;
    const std::string piece = text.substr(begin, length);
    if (piece.size() < 2 || known.contains(Spelling(piece))) continue;
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      const std::string left = Spelling(piece.substr(0, cut));
      const std::string right = Spelling(piece.substr(cut));
      if (!known.contains(left) || !known.contains(right)) continue;
      merges.push_back(left + " " + right);
      known.insert(Spelling(piece));
      tokens.push_back(Spelling(piece));
      break;
    }
  }
  types.resize(tokens.size(), 1);
  GgufBuilder file = SmallMoe("llama");
  file.Set("tokenizer.ggml.model", "gpt2")
      .Set("tokenizer.ggml.pre", pre.c_str())
      .SetStrings("tokenizer.ggml.tokens", tokens)
      .SetInts("tokenizer.ggml.token_type", types)
      .SetStrings("tokenizer.ggml.merges", merges)
      .Set("tokenizer.ggml.bos_token_id", 0U)
      .Set("tokenizer.ggml.eos_token_id", 1U)
      .Set("tokenizer.ggml.add_bos_token", true)
      .Set("tokenizer.ggml.add_eos_token", true);
  return file;
}

// SentencePiece with all bytes, the characters of the snippets, and pieces of random texts. Some
// pieces go across spaces and line breaks.
GgufBuilder SentencePiece(bool space_prefix, uint32_t seed) {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>", "<|x y|>", "@@"};
  std::vector<int32_t> types{2, 3, 3, 3, 4};
  for (int b = 0; b < 256; ++b) {
    tokens.push_back(Format("<0x{:02X}>", b));
    types.push_back(6);
  }
  std::set<std::string> known(tokens.begin(), tokens.end());
  const auto add = [&](const std::string& text) {
    std::string marked;
    for (const char c : text) c == ' ' ? marked += "\xE2\x96\x81" : marked += c;
    if (!known.insert(marked).second) return;
    tokens.push_back(marked);
  };
  std::mt19937 random(seed);
  for (char c = 'a'; c <= 'z'; ++c) add(std::string(1, c));
  add(" ");
  for (int i = 0; i < 500; ++i) {
    const std::string text = RandomText(random, 2);
    // Whole characters.
    std::vector<size_t> begins;
    for (size_t at = 0; at < text.size(); ++at) {
      if ((static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U) begins.push_back(at);
    }
    const size_t first = random() % begins.size();
    const size_t last = std::min(first + 1 + random() % 4, begins.size());
    const size_t end = last == begins.size() ? text.size() : begins[last];
    add(text.substr(begins[first], end - begins[first]));
  }
  types.resize(tokens.size(), 1);
  std::vector<float> scores;
  for (size_t i = 0; i < tokens.size(); ++i) scores.push_back(-static_cast<float>(random() % 50));
  GgufBuilder file = SmallMoe("llama");
  file.Set("tokenizer.ggml.model", "llama")
      .SetStrings("tokenizer.ggml.tokens", tokens)
      .SetFloats("tokenizer.ggml.scores", scores)
      .SetInts("tokenizer.ggml.token_type", types)
      .Set("tokenizer.ggml.add_space_prefix", space_prefix)
      .Set("tokenizer.ggml.add_eos_token", space_prefix);
  return file;
}

std::vector<Token> InPieces(const Vocab& vocab, std::string_view text,
                            const TokenStream::Options& options, size_t* pieces = nullptr) {
  TokenStream stream(vocab, FromText(text), options);
  std::vector<Token> all;
  while (true) {
    const auto tokens = stream.Next();
    EXPECT_TRUE(tokens) << tokens.error().message;
    if (!tokens || tokens->empty()) break;
    all.insert(all.end(), tokens->begin(), tokens->end());
    if (pieces != nullptr) ++*pieces;
  }
  return all;
}

// The property: whatever the text, pieces give the tokens of the whole. Pieces are so small that
// every place that may be cut is tried. Gives the number of pieces.
size_t ExpectSameTokens(const Vocab& vocab, const std::string& name, uint32_t seed, int texts) {
  std::mt19937 random(seed);
  size_t pieces = 0;
  for (int i = 0; i < texts; ++i) {
    const std::string text = RandomText(random, 1 + random() % 40);
    for (const bool special : {false, true}) {
      const TokenStream::Options options{.add_special = special,
                                         .parse_special = random() % 2 == 0,
                                         .piece_bytes = 1 + random() % 12,
                                         .longest_piece_bytes = 4096};
      const auto whole = vocab.Tokenize(text, special, options.parse_special);
      EXPECT_TRUE(whole) << whole.error().message;
      if (!whole) return 0;
      EXPECT_EQ(InPieces(vocab, text, options, &pieces), *whole) << name << ": " << text;
      if (testing::Test::HasFailure()) return 0;
    }
  }
  return pieces;
}

TEST_F(TokenStreamTest, SentencePieceGivesTheTokensOfTheWhole) {
  for (const bool space_prefix : {false, true}) {
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      const auto vocab = Load(SentencePiece(space_prefix, seed));
      ASSERT_TRUE(vocab);
      constexpr int kTexts = 150;
      EXPECT_GT(ExpectSameTokens(*vocab, "SentencePiece", seed, kTexts), 10 * kTexts);
    }
  }
}

// Tests every name of a pre-tokenizer that has places to cut, if this libllama has the name.
TEST_F(TokenStreamTest, BytePairsGiveTheTokensOfTheWhole) {
  int known = 0;
  for (const std::string& pre : TextCutter::PreTokenizers()) {
    const auto vocab = Load(ByteLevel(pre, 3));
    if (!vocab) continue;  // this libllama is older than the name
    known += 1;
    constexpr int kTexts = 60;
    EXPECT_GT(ExpectSameTokens(*vocab, pre, 7, kTexts), 3 * kTexts) << pre;
  }
  EXPECT_GT(known, 25);
}

// gemma4: words as they are, merged by rank, cut at line breaks.
TEST_F(TokenStreamTest, Gemma4GivesTheTokensOfTheWhole) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    GgufBuilder file = SentencePiece(false, seed);
    std::vector<std::string> tokens{"<unk>", "<s>", "</s>", "<|x y|>", "@@"};
    std::vector<int32_t> types{2, 3, 3, 3, 4};
    for (int b = 0; b < 256; ++b) {
      tokens.push_back(Format("<0x{:02X}>", b));
      types.push_back(6);
    }
    std::set<std::string> known(tokens.begin(), tokens.end());
    std::vector<std::string> merges;
    for (const std::string& snippet : kSnippets) {
      if (snippet == "</s>" || snippet == "<s>" || snippet == "<|x y|>" || snippet == "@@")
        continue;
      std::string marked;
      for (const char c : snippet) c == ' ' ? marked += "\xE2\x96\x81" : marked += c;
      for (size_t at = 0; at < marked.size();) {
        size_t end = at + 1;
        while (end < marked.size() && (static_cast<unsigned char>(marked[end]) & 0xC0U) == 0x80U)
          ++end;
        if (known.insert(marked.substr(at, end - at)).second) {
          tokens.push_back(marked.substr(at, end - at));
        }
        if (at > 0 && known.insert(marked.substr(0, end)).second) {
          tokens.push_back(marked.substr(0, end));
          merges.push_back(marked.substr(0, at) + " " + marked.substr(at, end - at));
        }
        at = end;
      }
    }
    types.resize(tokens.size(), 1);
    file.Remove("tokenizer.ggml.scores")
        .Set("tokenizer.ggml.model", "gemma4")
        .Set("tokenizer.ggml.pre", "llama3")  // which does not count
        .SetStrings("tokenizer.ggml.tokens", tokens)
        .SetInts("tokenizer.ggml.token_type", types)
        .SetStrings("tokenizer.ggml.merges", merges)
        .Set("tokenizer.ggml.bos_token_id", 1U)
        .Set("tokenizer.ggml.eos_token_id", 2U)
        .Set("tokenizer.ggml.unknown_token_id", 0U)
        .Set("tokenizer.ggml.add_bos_token", true);
    const auto vocab = Load(file);
    ASSERT_TRUE(vocab);
    constexpr int kTexts = 300;
    EXPECT_GT(ExpectSameTokens(*vocab, "gemma4", seed, kTexts), 2 * kTexts);
  }
}

TEST_F(TokenStreamTest, WhatIsNotKnownIsNotCut) {
  for (const char* pre : {"superbpe", "exaone-moe", "bloom", "whitespace", "unheard-of"}) {
    EXPECT_EQ(TextCutter::KindOfPreTokenizer(pre), TextCutter::Kind::kNowhere) << pre;
  }
  const auto vocab = Load(ByteLevel("bloom", 3));
  ASSERT_TRUE(vocab);
  size_t pieces = 0;
  const TokenStream::Options options{
      .add_special = false, .piece_bytes = 8, .longest_piece_bytes = 4096};
  const std::string text = "Once upon a time, there was a word.\nAnd another one.";
  EXPECT_EQ(InPieces(*vocab, text, options, &pieces), *vocab->Tokenize(text, false, false));
  EXPECT_EQ(pieces, 1U);
}

// Two of the tokens that begin a text would be one too many, in pieces as in the whole.
TEST_F(TokenStreamTest, WhatATextSpellsIsNotAddedToIt) {
  for (const bool is_sentence_piece : {false, true}) {
    const auto vocab = Load(is_sentence_piece ? SentencePiece(true, 1) : ByteLevel("gpt-2", 1));
    ASSERT_TRUE(vocab);
    const Token begin = vocab->begin_tokens().front();
    for (const std::string text : {"<s>the word the word", "<s>", "the word</s>", "<s>a</s>", ""}) {
      const auto whole = vocab->Tokenize(text, true, true);
      ASSERT_TRUE(whole) << whole.error().message;
      EXPECT_EQ(InPieces(*vocab, text, {.parse_special = true, .piece_bytes = 2}), *whole) << text;
      EXPECT_EQ(whole->front(), begin) << text;
      EXPECT_EQ(std::ranges::count(*whole, begin), 1) << text;
    }
  }
}

TEST_F(TokenStreamTest, LongTextsAndLongLines) {
  constexpr size_t kBytes = 1'000'000;
  std::string words;
  std::string letters;  // one line without a space
  std::mt19937 random(5);
  while (words.size() < kBytes) words += kSnippets[random() % 8] + " ";
  while (letters.size() < kBytes) letters += static_cast<char>('a' + random() % 26);
  const TokenStream::Options options{.add_special = true, .longest_piece_bytes = 2 * kBytes};
  for (const bool is_sentence_piece : {false, true}) {
    const auto vocab = Load(is_sentence_piece ? SentencePiece(true, 1) : ByteLevel("gpt-2", 1));
    ASSERT_TRUE(vocab);
    for (const std::string& text : {words, letters}) {
      size_t pieces = 0;
      const auto whole = vocab->Tokenize(text, true, false);
      ASSERT_TRUE(whole);
      EXPECT_TRUE(InPieces(*vocab, text, options, &pieces) == *whole);
      // A byte-level vocabulary has no place inside a word.
      EXPECT_EQ(pieces > 10, is_sentence_piece || &text == &words || text == words);
    }
  }
}

TEST_F(TokenStreamTest, AStretchThatIsTooLongIsRefused) {
  const auto vocab = Load(ByteLevel("gpt-2", 1));
  ASSERT_TRUE(vocab);
  const std::string text = "one two " + std::string(5000, 'x');
  TokenStream stream(*vocab, FromText(text),
                     {.add_special = false, .piece_bytes = 16, .longest_piece_bytes = 1000});
  const auto tokens = Collect(stream, UINT64_MAX);
  ASSERT_FALSE(tokens);
  EXPECT_EQ(tokens.error().code, Errc::kInvalidRequest);
  EXPECT_NE(tokens.error().message.find("from byte 7 on"), std::string::npos)
      << tokens.error().message;
}

TEST_F(TokenStreamTest, NamesTheFirstByteThatIsNotUtf8) {
  const auto vocab = Load(ByteLevel("gpt-2", 1));
  ASSERT_TRUE(vocab);
  std::string text;
  for (int i = 0; i < 50; ++i) text += "some words ";
  const size_t at = text.size();
  text += "\xFF and more words after it";
  TokenStream stream(*vocab, FromText(text), {.piece_bytes = 32});
  const auto tokens = Collect(stream, UINT64_MAX);
  ASSERT_FALSE(tokens);
  EXPECT_NE(tokens.error().message.find(Format("byte {};", at)), std::string::npos)
      << tokens.error().message;
}

TEST_F(TokenStreamTest, CollectStopsWhereItIsTold) {
  const auto vocab = Load(ByteLevel("gpt-2", 1));
  ASSERT_TRUE(vocab);
  const std::string text(1000, ' ');
  size_t asked = 0;
  TokenStream stream(*vocab,
                     [&](size_t most) -> Result<std::string> {
                       asked += most;
                       return "word and " + std::string(most > 9 ? most - 9 : 0, ' ');
                     },
                     {.piece_bytes = 64, .longest_piece_bytes = 256});
  const auto tokens = Collect(stream, 100);  // the first tokens of an endless text
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->size(), 100U);
  EXPECT_LT(asked, 20000U);
}

}  // namespace
}  // namespace moestro
