// SPDX-License-Identifier: MIT
// For tests: small GGUF files written by gguf.h, and headers written byte by byte.
#pragma once

#include <gguf.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace moestro {

class GgufBuilder {
 public:
  GgufBuilder();
  ~GgufBuilder();
  GgufBuilder(GgufBuilder&&) noexcept;
  GgufBuilder& operator=(GgufBuilder&&) = delete;

  GgufBuilder& Set(const std::string& key, uint32_t value);
  GgufBuilder& Set(const std::string& key, float value);
  GgufBuilder& Set(const std::string& key, bool value);
  GgufBuilder& Set(const std::string& key, const char* value);
  GgufBuilder& SetStrings(const std::string& key, const std::vector<std::string>& values);
  GgufBuilder& SetFloats(const std::string& key, const std::vector<float>& values);
  GgufBuilder& SetInts(const std::string& key, const std::vector<int32_t>& values);
  GgufBuilder& Remove(const std::string& key);
  // For value types without a setter above.
  gguf_context* raw() { return gguf_; }

  // Adds a tensor; a tensor with the same name is replaced in its place.
  GgufBuilder& Tensor(const std::string& name, ggml_type type, const std::vector<int64_t>& ne);
  GgufBuilder& RemoveTensor(const std::string& name);

  // Tensor bytes are a running pattern, so that two places differ.
  void Write(const std::string& path) const;

 private:
  struct TensorDef {
    std::string name;
    ggml_type type;
    std::vector<int64_t> ne;
  };
  gguf_context* gguf_;
  std::vector<TensorDef> tensors_;
};

// A small model of a family: 2 layers, 32 wide, 4 heads (2 of keys and values), 4 experts of 64 (2
// used), 300 tokens, no text.
GgufBuilder SmallMoe(std::string_view arch);
// A small olmoe as a fitted model: experts 1 and 2 of the first layer are low, all of the second
// are high.
GgufBuilder SmallFitted();
// 300 tokens: <s>, </s>, 256 bytes spelled as GPT-2 does, some merged words. For SmallMoe().
void AddByteLevelVocabulary(GgufBuilder& file);
// BERT's: [PAD], [UNK], [CLS], [SEP], letters that begin words and letters within them, "hello".
void AddBertVocabulary(GgufBuilder& file);

// A header written by hand, for files that gguf.h would refuse to write.
class RawHeader {
 public:
  RawHeader(uint64_t n_tensors, uint64_t n_keys, uint32_t version = 3);
  template <class T>
    requires std::is_arithmetic_v<T>
  RawHeader& Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  RawHeader& Text(std::string_view text);  // length and bytes
  RawHeader& Key(std::string_view key, uint32_t type) { return Text(key).Number(type); }
  RawHeader& Tensor(std::string_view name, const std::vector<int64_t>& ne, uint32_t type,
                    uint64_t offset);
  RawHeader& Zeros(uint64_t count);

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

void WriteBytes(const std::string& path, std::string_view bytes);
std::string ReadBytes(const std::string& path);

}  // namespace moestro
