// SPDX-License-Identifier: MIT
// A disk that fills the memory of each read with 0xFF before the bytes come, so that bytes of an
// expert that is not there yet, or not any more, show in every product.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "store/block_reader.h"

namespace moestro {

class PoisoningReader final : public BlockReader {
 public:
  explicit PoisoningReader(std::unique_ptr<BlockReader> inner) : inner_(std::move(inner)) {}

  // For EngineOptions::wrap_reader.
  static std::unique_ptr<BlockReader> Wrap(std::unique_ptr<BlockReader> inner) {
    return std::make_unique<PoisoningReader>(std::move(inner));
  }

  uint64_t block() const override { return inner_->block(); }
  bool Submit(const BlockRead& read) override {
    std::ranges::fill(read.to, std::byte{0xFF});
    return inner_->Submit(read);
  }
  size_t Poll(std::span<BlockDone> out) override { return inner_->Poll(out); }
  size_t Wait(std::span<BlockDone> out) override { return inner_->Wait(out); }
  std::string description() const override { return "poisoning"; }

 private:
  std::unique_ptr<BlockReader> inner_;
};

}  // namespace moestro
