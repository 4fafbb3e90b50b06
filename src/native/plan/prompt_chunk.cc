// SPDX-License-Identifier: MIT
#include "native/plan/prompt_chunk.h"

#include <algorithm>

namespace moestro {

uint32_t PromptChunk(const RouterSpec& router) {
  constexpr uint64_t kLeast = 512;
  constexpr uint64_t kMost = 2048;
  constexpr uint64_t kRowsOfAnExpert = 64;
  const uint64_t used = std::max(router.n_used, 1U);
  const uint64_t tokens = kRowsOfAnExpert * router.n_expert / used;
  const uint64_t whole = (tokens + kLeast - 1) / kLeast * kLeast;
  return static_cast<uint32_t>(std::clamp(whole, kLeast, kMost));
}

uint32_t ChunkWithin(uint32_t chunk, uint64_t work, uint64_t room) {
  constexpr uint64_t kShare = 2;
  while (chunk / 2 >= kLeastChunk && work > room / kShare) {
    chunk /= 2;
    work /= 2;
  }
  return chunk;
}

uint32_t ChunkFor(uint32_t asked, const RouterSpec& router) {
  return asked > 0 ? asked : PromptChunk(router);
}

}  // namespace moestro
