// SPDX-License-Identifier: MIT
#include "hub/content_hash.h"

#include <openssl/evp.h>

#include <array>

#include "base/result.h"
#include "base/text.h"

namespace moestro {

struct ContentHash::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();

  State() = default;
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

// libcrypto's calls below fail only where memory is gone or a machine forbids the hash.
ContentHash::ContentHash(HashKind kind, uint64_t size) : state_(std::make_unique<State>()) {
  const EVP_MD* const method = kind == HashKind::kSha256 ? EVP_sha256() : EVP_sha1();
  CHECK(EVP_DigestInit_ex(state_->context, method, nullptr) == 1);
  if (kind == HashKind::kSha256) return;
  std::string head = Format("blob {}", size);
  head.push_back('\0');
  Add(std::as_bytes(std::span(head)));
}

ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;
ContentHash::~ContentHash() = default;

void ContentHash::Add(std::span<const std::byte> bytes) {
  CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string ContentHash::Finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &length) == 1);
  std::string hex;
  for (const unsigned char byte : std::span(digest).first(length)) hex += Format("{:02x}", byte);
  return hex;
}

}  // namespace moestro
