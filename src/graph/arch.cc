// SPDX-License-Identifier: MIT
#include "graph/arch.h"

#include <utility>

namespace moestro {

ArchChoices ChoicesFor(Arch arch) {
  switch (arch) {
    case Arch::kLlama:
      return LlamaChoices();
    case Arch::kQwen2Moe:
      return Qwen2MoeChoices();
    case Arch::kQwen3Moe:
      return Qwen3MoeChoices();
    case Arch::kOlmoe:
      return OlmoeChoices();
    case Arch::kPhimoe:
      return PhimoeChoices();
  }
  std::unreachable();
}

}  // namespace moestro
