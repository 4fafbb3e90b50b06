// SPDX-License-Identifier: MIT
// The two hashes by which a hub names contents. OpenSSL stays in content_hash.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace moestro {

enum class HashKind : uint8_t {
  kSha256,   // of the content: 64 digits
  kGitBlob,  // SHA-1 of "blob SIZE", a zero byte and the content: 40 digits
};

class ContentHash {
 public:
  // `size`: of the whole content, in bytes.
  ContentHash(HashKind kind, uint64_t size);
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;
  ~ContentHash();

  void Add(std::span<const std::byte> bytes);
  // Hexadecimal digits in lower case. Ends the hash.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moestro
