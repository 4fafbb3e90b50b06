// SPDX-License-Identifier: MIT
// Writes the headers of small valid models, one per architecture with and without a vocabulary, as
// a corpus to begin from: moestro_gguf_seeds FOLDER.
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/check.h"
#include "base/format.h"
#include "model/gguf_file.h"
#include "model/test_gguf.h"

namespace {

void WriteHeader(const moestro::GgufBuilder& model, const std::string& path) {
  model.Write(path);
  const auto file = moestro::GgufFile::Open(path);
  CHECK(file.has_value());
  std::filesystem::resize_file(path, file->tensors().front().extent.offset);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: moestro_gguf_seeds FOLDER\n");
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  constexpr std::array kArchs{"llama", "qwen2moe", "qwen3moe", "olmoe", "phimoe"};
  for (size_t i = 0; i < kArchs.size(); ++i) {
    moestro::GgufBuilder model = moestro::SmallMoe(kArchs[i]);
    WriteHeader(model, Format("{}/ids_{}.gguf", argv[1], i));
    moestro::AddByteLevelVocabulary(model);
    WriteHeader(model, Format("{}/text_{}.gguf", argv[1], i));
  }
  return 0;
}
