// SPDX-License-Identifier: MIT
// The demo model's vocabulary, loaded once for all tests of a program.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "model/vocab.h"

namespace moestro {

inline constexpr const char* kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";

inline const Vocab& DemoVocab() {
  static const Vocab vocab = [] {
    auto loaded = Vocab::Load(std::string(kDemo));
    EXPECT_TRUE(loaded) << loaded.error().message;
    return *std::move(loaded);
  }();
  return vocab;
}

}  // namespace moestro
