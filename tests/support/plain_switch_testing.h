// SPDX-License-Identifier: MIT
// A model with an encoder and a decoder, evaluated by plain loops that share nothing with the
// engine. Weights of F32, of a GGUF file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/model_spec.h"

namespace moestro {

class PlainSwitch {
 public:
  // Stops the test program if the file cannot be read or is not of F32 alone.
  explicit PlainSwitch(const std::string& path);

  // capacity: rows of the source that an expert computes, 0: any number. Logits after each of the
  // target's tokens, [tokens][vocab].
  std::vector<float> Logits(std::span<const Token> source, std::span<const Token> target,
                            uint32_t capacity = 0) const;
  const ModelSpec& spec() const { return spec_; }

 private:
  using Rows = std::vector<std::vector<double>>;
  Rows Embed(std::span<const Token> tokens) const;
  const std::vector<float>& Tensor(const std::string& name) const { return tensors_.at(name); }
  std::vector<double> Multiply(const std::string& matrix, const std::vector<double>& x) const;
  std::vector<double> Norm(const std::string& weight, const std::vector<double>& x) const;
  void Attend(uint32_t layer, const Rows& keys_of, Rows& rows) const;
  void FeedForward(uint32_t layer, uint32_t capacity, Rows& rows) const;
  std::vector<double> Block(const std::string& up, const std::string& down, size_t expert,
                            const std::vector<double>& x) const;

  ModelSpec spec_;
  std::map<std::string, std::vector<float>> tensors_;
};

}  // namespace moestro
