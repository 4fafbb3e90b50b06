// SPDX-License-Identifier: MIT
// Writes small valid models, one per architecture with and without a vocabulary, as a corpus to
// begin from: moestro_gguf_seeds FOLDER.
#include <array>
#include <cstdio>
#include <filesystem>
#include <format>

#include "model/test_gguf.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: moestro_gguf_seeds FOLDER\n");
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  constexpr std::array kArchs{moestro::Arch::kLlama, moestro::Arch::kQwen2Moe,
                              moestro::Arch::kQwen3Moe, moestro::Arch::kOlmoe,
                              moestro::Arch::kPhimoe};
  for (size_t i = 0; i < kArchs.size(); ++i) {
    moestro::GgufBuilder model = moestro::SmallMoe(kArchs[i]);
    model.Write(std::format("{}/ids_{}.gguf", argv[1], i));
    moestro::AddByteLevelVocabulary(model);
    model.Write(std::format("{}/text_{}.gguf", argv[1], i));
  }
  return 0;
}
