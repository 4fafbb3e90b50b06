// SPDX-License-Identifier: MIT
#include "model/vocab.h"

#include <llama.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "model/byte_source.h"
#include "model/families/families.h"
#include "model/gguf_file.h"
#include "model/llama_load.h"

namespace moestro {
namespace {

constexpr uint64_t kMaxTokens = uint64_t{1} << 20;
constexpr uint64_t kMaxTokenBytes = 64 * kKiB;
// libllama spells out bytes that it cannot decode and repeats the whole token each time, so memory
// grows with the square of a token's length. The largest published vocabularies stay below 100 MiB.
constexpr uint64_t kMaxSquaredBytes = 512 * kMiB;

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kCharacters = "tokenizer.ggml.precompiled_charsmap";
constexpr const char* kMerges = "tokenizer.ggml.merges";

Status CheckArray(const GgufFile& file, const std::string& key, gguf_type type,
                  uint64_t min_count) {
  const MetaValue* value = file.FindValue(key);
  if (value == nullptr) return {};
  if (!value->is_array || value->type != type || value->count < min_count) {
    return Fail(Errc::kInvalidFile, "{}: '{}' has {} values of type {}, expected an array of {} {}",
                file.paths().front(), key, value->count, gguf_type_name(value->type), min_count,
                gguf_type_name(type));
  }
  return {};
}

Status CheckTokenTexts(const GgufFile& file, const MetaValue& tokens) {
  TRY(FileCursor in, FileCursor::Open(file.paths().front()));
  TRY_STATUS(in.Skip(tokens.offset, "the vocabulary"));
  std::vector<std::pair<size_t, uint64_t>> hashes;  // hash of a token's text, with the token's id
  hashes.reserve(tokens.count);
  uint64_t squared_bytes = 0;
  for (uint64_t id = 0; id < tokens.count; ++id) {
    TRY(std::string text, in.ReadString(kMaxTokenBytes, "a token"));
    text.resize(std::min(text.find('\0'), text.size()));  // libllama reads C strings
    squared_bytes += text.size() * text.size();
    // libllama gives empty tokens a name with their id.
    const bool empty = text.empty();
    hashes.emplace_back(std::hash<std::string>{}(empty ? Format("[EMPTY_{}]", id) : text), id);
  }
  if (squared_bytes > kMaxSquaredBytes) {
    return Fail(Errc::kInvalidFile,
                "{}: the tokens of '{}' are far longer than in any real vocabulary",
                file.paths().front(), kTokens);
  }
  std::ranges::sort(hashes);
  const auto twin = std::ranges::adjacent_find(hashes, {}, &std::pair<size_t, uint64_t>::first);
  if (twin == hashes.end()) return {};
  return Fail(Errc::kInvalidFile, "{}: tokens {} and {} of '{}' are the same text",
              file.paths().front(), twin->second, std::next(twin)->second, kTokens);
}

// Checks T5's character map: bytes, of which the first four are the size of the rest.
Status CheckCharacterMap(const GgufFile& file) {
  const MetaValue* value = file.FindValue(kCharacters);
  if (value == nullptr) return {};
  const bool is_bytes = value->is_array && value->type == GGUF_TYPE_UINT8;
  if (is_bytes && value->count > sizeof(uint32_t)) return {};
  return Fail(Errc::kInvalidFile, "{}: '{}' has {} values of type {}, expected an array of bytes",
              file.paths().front(), kCharacters, value->count, gguf_type_name(value->type));
}

// Checks BERT's tokens: libllama ends the process on one that stands for a byte, and takes the
// token for unknown words as it is.
Status CheckBert(const GgufFile& file, uint64_t n_tokens) {
  constexpr uint64_t kByte = 6;
  constexpr uint64_t kUsualUnknown = 100;
  if (file.FindValue(kTypes) != nullptr) {
    TRY(const std::vector<uint64_t> types, file.ArrayOfUints(kTypes, n_tokens));
    if (std::ranges::contains(types, kByte)) {
      return Fail(Errc::kUnsupported, "{}: tokenizer 'bert' with tokens for bytes is not supported",
                  file.paths().front());
    }
  }
  TRY(const auto unknown, file.FindUint("tokenizer.ggml.unknown_token_id"));
  if (unknown.value_or(kUsualUnknown) < n_tokens) return {};
  return Fail(Errc::kInvalidFile, "{}: unknown words are token {} of {}", file.paths().front(),
              unknown.value_or(kUsualUnknown), n_tokens);
}

// A model without text may still name the number of its ids.
Status CheckNoText(const GgufFile& file) {
  TRY(const auto arch, file.FindString("general.architecture"));
  const std::string key = arch.value_or("") + ".vocab_size";
  TRY(const auto size, file.FindUint(key));
  if (size.value_or(0) <= kMaxTokens) return {};
  return Fail(Errc::kInvalidFile, "{}: {} is {}, at most {} make sense", file.paths().front(),
              Printable(key), *size, kMaxTokens);
}

}  // namespace

Status CheckTokenizer(const GgufFile& file) {
  const std::string& path = file.paths().front();
  TRY(const auto model, file.FindString("tokenizer.ggml.model"));
  if (!model) {
    return Fail(Errc::kInvalidFile,
                "{}: metadata 'tokenizer.ggml.model' is missing; convert the model again", path);
  }
  if (*model == "none" || *model == "no_vocab") return CheckNoText(file);
  // libllama reads rwkv's texts for ever where no token fits.
  if (*model == "rwkv") {
    return Fail(Errc::kUnsupported, "{}: tokenizer '{}' is not supported", path, *model);
  }
  TRY(const auto pre, file.FindString("tokenizer.ggml.pre"));
  if (pre == "whitespace") {  // spaces stay in its pieces, and libllama's merging asserts on them
    return Fail(Errc::kUnsupported, "{}: pre-tokenizer 'whitespace' is not supported", path);
  }
  const MetaValue* tokens = file.FindValue(kTokens);
  if (tokens == nullptr || tokens->count == 0 || tokens->count > kMaxTokens) {
    return Fail(Errc::kInvalidFile, "{}: '{}' has {} tokens, expected 1 to {}", path, kTokens,
                tokens == nullptr ? 0 : tokens->count, kMaxTokens);
  }
  TRY_STATUS(CheckArray(file, kTokens, GGUF_TYPE_STRING, 1));
  TRY_STATUS(CheckArray(file, kScores, GGUF_TYPE_FLOAT32, tokens->count));
  TRY_STATUS(CheckArray(file, kTypes, GGUF_TYPE_INT32, tokens->count));
  TRY_STATUS(CheckArray(file, kMerges, GGUF_TYPE_STRING, 0));
  TRY_STATUS(CheckCharacterMap(file));
  if (*model == "bert") TRY_STATUS(CheckBert(file, tokens->count));
  return CheckTokenTexts(file, *tokens);
}

namespace {

// Checks the special tokens: libllama asserts that they exist.
bool SpecialTokensExist(const llama_vocab* vocab) {
  const int32_t size = llama_vocab_n_tokens(vocab);
  const auto in_range = [size](llama_token token) { return token >= 0 && token < size; };
  return (!llama_vocab_get_add_bos(vocab) || in_range(llama_vocab_bos(vocab))) &&
         (!llama_vocab_get_add_eos(vocab) || in_range(llama_vocab_eos(vocab))) &&
         (llama_vocab_type(vocab) != LLAMA_VOCAB_TYPE_WPM || in_range(llama_vocab_sep(vocab)));
}

// The kind of cutter; `model` and `pre_tokenizer` come from the metadata.
TextCutter::Kind CutsOf(const llama_vocab* vocab, const std::string& model,
                        const std::string& pre_tokenizer) {
  if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_SPM) return TextCutter::Kind::kSentencePiece;
  if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_WPM) return TextCutter::Kind::kAtLines;
  if (llama_vocab_type(vocab) != LLAMA_VOCAB_TYPE_BPE) return TextCutter::Kind::kNowhere;
  // gemma4 has one expression, whatever pre-tokenizer the file names.
  if (model == "gemma4") return TextCutter::Kind::kAtLines;
  return TextCutter::KindOfPreTokenizer(pre_tokenizer);
}

TextCutter MakeCutter(const llama_vocab* vocab, TextCutter::Kind kind) {
  TextCutter cutter(kind);
  constexpr int kSearched =
      LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED | LLAMA_TOKEN_ATTR_UNKNOWN;
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    const std::string_view text = llama_vocab_get_text(vocab, token);
    cutter.AddToken(text);
    if ((llama_vocab_get_attr(vocab, token) & kSearched) != 0) cutter.AddSpecial(text);
  }
  return cutter;
}

// Whether a byte-level vocabulary has a token for every byte: libllama drops bytes without one. A
// byte is spelled as itself if it is printable in Latin-1, the other 68 as U+0100 and on.
bool HasEveryByte(const llama_vocab* vocab) {
  std::set<std::string_view> bytes;
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    const std::string_view text = llama_vocab_get_text(vocab, token);
    if (text.size() == 1 && text[0] > ' ' && text[0] < '\x7F') bytes.insert(text);
    if (text.size() != 2 || (static_cast<unsigned char>(text[0]) & 0xE0U) != 0xC0U) continue;
    const unsigned code = (static_cast<unsigned char>(text[0]) & 0x1FU) << 6U |
                          (static_cast<unsigned char>(text[1]) & 0x3FU);
    if ((code >= 0xA1 && code <= 0xFF && code != 0xAD) || (code >= 0x100 && code < 0x144)) {
      bytes.insert(text);
    }
  }
  return bytes.size() == 256;
}

uint32_t LongestTokenBytes(const llama_vocab* vocab) {
  if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_BPE && !HasEveryByte(vocab)) return 0;
  if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_WPM) return 0;  // an unknown word is one token
  size_t longest = 1;
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    // A token that strips spaces stands for any number of them.
    constexpr int kStrips = LLAMA_TOKEN_ATTR_LSTRIP | LLAMA_TOKEN_ATTR_RSTRIP;
    if ((llama_vocab_get_attr(vocab, token) & kStrips) != 0) return 0;
    longest = std::max(longest, std::string_view(llama_vocab_get_text(vocab, token)).size());
  }
  return static_cast<uint32_t>(longest);
}

// nullptr: the file's model has no encoder.
Result<const Family*> FindWithEncoder(const GgufFile& file) {
  TRY(const auto arch, file.FindString("general.architecture"));
  const Family* family = FindFamily(Families(), arch.value_or(""));
  return family != nullptr && family->has_encoder ? family : nullptr;
}

// The token that ends a source and begins the target, in a model with an encoder.
Result<Token> FindTargetBegin(const GgufFile& file, const Family& family) {
  TRY(const auto token, file.FindUint(Format("{}.decoder_start_token_id", family.name)));
  return static_cast<Token>(token.value_or(0));
}

}  // namespace

void Vocab::FreeModel::operator()(llama_model* model) const { llama_model_free(model); }

Result<Vocab> Vocab::Load(const std::string& path) {
  TRY(const GgufFile file, GgufFile::Open(path));
  return Load(file);
}

Result<Vocab> Vocab::Load(const GgufFile& file) {
  TRY_STATUS(CheckTokenizer(file));
  TRY(const std::optional<std::string> model_name, file.FindString("tokenizer.ggml.model"));
  TRY(const std::optional<std::string> pre_tokenizer, file.FindString("tokenizer.ggml.pre"));
  const std::string& path = file.paths().front();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.load_mode = LLAMA_LOAD_MODE_NONE;  // no mapping, so no read-ahead into the tensors
  params.n_gpu_layers = 0;
  std::string reason;
  UniqueFd as_t5;
  TRY(const Family* const with_encoder, FindWithEncoder(file));
  if (with_encoder != nullptr) {
    TRY(as_t5, VocabularyAsT5(file));
  }
  Model model(LoadByLlama(as_t5.get() >= 0 ? PathOf(as_t5) : path, params, reason));
  if (model == nullptr) {
    return Fail(Errc::kInvalidFile, "{}: libllama cannot read the vocabulary: {}", path,
                Printable(reason, 300));
  }
  Vocab vocab(std::move(model), path);
  if (vocab.has_text() && !SpecialTokensExist(vocab.vocab_)) {
    return Fail(
        Errc::kInvalidFile,
        "{}: the tokenizer adds a begin or end token that its vocabulary of {} does not have", path,
        vocab.size());
  }
  if (vocab.has_text()) {
    vocab.cutter_ = MakeCutter(
        vocab.vocab_, CutsOf(vocab.vocab_, model_name.value_or(""), pre_tokenizer.value_or("")));
    vocab.longest_token_bytes_ = LongestTokenBytes(vocab.vocab_);
  }
  if (with_encoder != nullptr) {
    TRY(vocab.target_begin_, FindTargetBegin(file, *with_encoder));
  }
  return vocab;
}

Vocab::Vocab(Model model, std::string path)
    : model_(std::move(model)),
      vocab_(llama_model_get_vocab(model_.get())),
      path_(std::move(path)) {}
Vocab::Vocab(Vocab&&) noexcept = default;
Vocab& Vocab::operator=(Vocab&&) noexcept = default;
Vocab::~Vocab() = default;

bool Vocab::has_text() const { return llama_vocab_type(vocab_) != LLAMA_VOCAB_TYPE_NONE; }
uint32_t Vocab::size() const { return static_cast<uint32_t>(llama_vocab_n_tokens(vocab_)); }
bool Vocab::is_end(Token token) const { return llama_vocab_is_eog(vocab_, token); }
const llama_vocab* Vocab::raw() const { return vocab_; }

bool Vocab::spaces_before_text() const { return llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_SPM; }

std::vector<Token> Vocab::begin_tokens() const {
  if (!has_text() || !llama_vocab_get_add_bos(vocab_)) return {};
  return {llama_vocab_bos(vocab_)};
}

std::vector<Token> Vocab::end_tokens() const {
  std::vector<Token> tokens;
  // A text for BERT ends with the separator of two texts, whatever other ends the file has.
  if (has_text() && llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_WPM) {
    return {llama_vocab_sep(vocab_)};
  }
  if (has_text() && llama_vocab_get_add_eos(vocab_)) tokens.push_back(llama_vocab_eos(vocab_));
  if (has_text() && target_begin_) tokens.push_back(*target_begin_);
  return tokens;
}

bool Vocab::is_complete(std::span<const Token> first) const {
  return has_text() && !first.empty() && first.front() == llama_vocab_bos(vocab_);
}

std::vector<Token> Vocab::MissingEnd(std::span<const Token> last) const {
  std::vector<Token> end = end_tokens();
  size_t has = std::min(end.size(), last.size());
  while (!std::ranges::equal(last.last(has), std::span(end).first(has))) --has;
  end.erase(end.begin(), end.begin() + static_cast<std::ptrdiff_t>(has));
  return end;
}

void Vocab::AddSpecial(std::vector<Token>& text) const {
  if (is_complete(text)) return;
  text.append_range(MissingEnd(text));
  const std::vector<Token> begin = begin_tokens();
  text.insert(text.begin(), begin.begin(), begin.end());
}

Result<std::vector<Token>> Vocab::Tokenize(std::string_view text, bool add_special,
                                           bool parse_special) const {
  if (!has_text()) {
    return Fail(Errc::kInvalidRequest, "{} has no tokenizer; give token ids instead of text",
                path_);
  }
  if (const size_t offset = FindInvalidUtf8(text); offset < text.size()) {
    return Fail(Errc::kInvalidRequest,
                "the text is not valid UTF-8 at byte {}; convert it to UTF-8", offset);
  }
  // A token per byte and two special ones always fit.
  constexpr size_t kMaxText = std::numeric_limits<int32_t>::max() / 2;
  if (text.size() > kMaxText) {
    return Fail(Errc::kInvalidRequest, "the text has {} bytes, at most {} can be tokenized at once",
                text.size(), kMaxText);
  }
  try {
    std::vector<Token> tokens(text.size() + 4);
    int32_t count =
        llama_tokenize(vocab_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                       static_cast<int32_t>(tokens.size()), false, parse_special);
    if (count < 0) {
      tokens.resize(static_cast<size_t>(-int64_t{count}));
      count = llama_tokenize(vocab_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                             static_cast<int32_t>(tokens.size()), false, parse_special);
    }
    if (count >= 0) {
      tokens.resize(static_cast<size_t>(count));
      // libllama gives -1 where the vocabulary lacks a token, as for unknown text without <unk>.
      if (!std::ranges::all_of(tokens, [&](Token t) { return t >= 0 && t < int64_t{size()}; })) {
        return Fail(Errc::kInvalidFile, "the vocabulary of {} has no token for a part of the text",
                    path_);
      }
      if (add_special) AddSpecial(tokens);
      return tokens;
    }
  } catch (const std::exception& e) {
    return Fail(Errc::kInvalidFile, "the vocabulary of {} cannot express the text ({})", path_,
                Printable(e.what()));
  }
  return Fail(Errc::kInvalidRequest, "the text of {} bytes cannot be tokenized", text.size());
}

std::string Vocab::Piece(Token token) const { return Text(token, false); }

std::string Vocab::Spelling(Token token) const { return Text(token, true); }

std::string Vocab::Text(Token token, bool spells_control) const {
  if (!has_text() || token < 0 || std::cmp_greater_equal(token, size())) return {};
  std::string piece(32, '\0');
  int32_t length = llama_token_to_piece(vocab_, token, piece.data(),
                                        static_cast<int32_t>(piece.size()), 0, spells_control);
  if (length < 0) {
    piece.resize(static_cast<size_t>(-length));
    length = llama_token_to_piece(vocab_, token, piece.data(), static_cast<int32_t>(piece.size()),
                                  0, spells_control);
  }
  piece.resize(static_cast<size_t>(std::max(length, 0)));
  return piece;
}

std::string Vocab::chat_template() const {
  const char* text = llama_model_chat_template(model_.get(), nullptr);
  return text == nullptr ? "" : text;
}

std::string Vocab::begin_text() const { return Spelling(llama_vocab_bos(vocab_)); }

std::string Vocab::end_text() const { return Spelling(llama_vocab_eos(vocab_)); }

std::vector<std::string> Vocab::control_texts() const {
  std::vector<std::string> texts;
  if (!has_text()) return texts;
  constexpr int kControl = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN;
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab_); ++token) {
    if ((llama_vocab_get_attr(vocab_, token) & kControl) == 0) continue;
    texts.emplace_back(llama_vocab_get_text(vocab_, token));
  }
  return texts;
}

bool Vocab::has_token(std::string_view text) const {
  const Result<std::vector<Token>> tokens = Tokenize(text, false, true);
  return tokens && tokens->size() == 1 && Spelling(tokens->front()) == text;
}

}  // namespace moestro
