// SPDX-License-Identifier: MIT
// FNV-1a with 64 bits, for checksums and fingerprints: a changed byte always changes the result.
// The hash is no defence against an attacker who seeks a collision. Offset basis and prime are
// those published by Fowler, Noll and Vo.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moestro {

class Fnv1a {
 public:
  void Add(std::string_view bytes) {
    for (const char byte : bytes) Mix(static_cast<uint8_t>(byte));
  }
  // The bytes of a number, lowest first.
  template <std::unsigned_integral T>
  void AddNumber(T number) {
    for (size_t shift = 0; shift < sizeof(T) * 8; shift += 8) {
      Mix(static_cast<uint8_t>(number >> shift));
    }
  }
  uint64_t value() const { return value_; }

 private:
  void Mix(uint8_t byte) {
    value_ ^= byte;
    value_ *= 0x100000001b3;
  }

  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace moestro
